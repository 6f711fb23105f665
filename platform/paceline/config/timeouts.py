"""How long things may take, all derived from two settings: the longest answer and the time until answers move."""

from dataclasses import dataclass

from paceline.config.schema import GatewayConfig, TargetConfig

MOVE_S = 10.0
"""An answer that leaves a replica runs on another one within this, in seconds."""
_UNOPENED_HOLD_S = 5.0
_DRAFTER_STOP_S = 5.0  # soft state: targets go on without it
_HEALTH_PERIOD_S = 2.0
_HEALTH_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """All in seconds."""

    target_stop_s: float
    """Until a target replica that was told to stop is killed: its answers finish, then move."""
    gateway_stop_s: float
    """The same of a gateway: it keeps its clients' connections until the longest answer has ended."""
    drafter_stop_s: float
    """The same of a drafter."""
    hold_open_s: float
    """A hold without a stream ends after this. Shorter than a move, so that it delays no stop."""
    health_period_s: float = _HEALTH_PERIOD_S
    """Between two questions of Ray Serve whether a replica is well."""
    health_timeout_s: float = _HEALTH_TIMEOUT_S
    """For an answer to such a question. Three in a row without one replace the replica: a long pass costs nothing."""


def derive_timeouts(gateway: GatewayConfig, target: TargetConfig) -> Timeouts:
    """The timeouts that follow from ``gateway.request_timeout_s`` and ``target.migrate_after_s``."""
    longest_s = gateway.request_timeout_s
    return Timeouts(
        target_stop_s=min(target.migrate_after_s, longest_s) + MOVE_S,
        gateway_stop_s=longest_s + MOVE_S,
        drafter_stop_s=_DRAFTER_STOP_S,
        hold_open_s=min(_UNOPENED_HOLD_S, longest_s),
    )
