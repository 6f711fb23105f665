"""Picks speculative or plain decoding for a request: pure functions over a snapshot."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from paceline.core.load import DrafterGroupStatus
from paceline.core.plans import Plan, Route, SpeculationMode, SpeculationPreference

# What a group is taken to bring before a target has seen enough of it, over plain decoding. Above 1, so that one that
# was never tried goes before one that is known to bring little; below what a good drafter brings.
UNKNOWN_GAIN = 1.2
OPERATOR_OFF = "the operator turned speculation off"


@dataclass(frozen=True, slots=True)
class RoutingSnapshot:
    """What the router knows at the moment of the decision."""

    drafter_groups: Sequence[DrafterGroupStatus]
    queued: int  # requests that wait in gateway and engine queues
    running: int  # choices that decode now
    default_draft_tokens: int  # the deployment's draft budget
    speculation_enabled: bool  # the operator's kill switch
    groups_known: bool = True  # whether any target has reported lately
    disabled_groups: Collection[str] = ()  # the kill switch for single groups


class Policy(Protocol):
    """Decides a request's plan."""

    def decide(self, preference: SpeculationPreference, snapshot: RoutingSnapshot) -> Plan:
        """Return the plan; never raises, never blocks."""


class SpeculateWhenLive:
    """Speculates whenever the wanted drafter group is live; without a wish, with the best of those that are.

    A plan that is plain only because the operator has turned speculation off names the group all the same:
    the answer speculates once it is turned on again.
    """

    def decide(self, preference: SpeculationPreference, snapshot: RoutingSnapshot) -> Plan:
        """Return the plan for one request."""
        if preference.mode is SpeculationMode.OFF:
            return _plain("the request turned speculation off")
        plan = self._decide(preference, snapshot)
        if not snapshot.speculation_enabled:
            return replace(plan, route=Route.PLAIN, reason=OPERATOR_OFF)
        return plan

    def _decide(self, preference: SpeculationPreference, snapshot: RoutingSnapshot) -> Plan:
        """The plan for a request that speculates if it can."""
        if not snapshot.groups_known:
            return _plain("the state of the drafter groups is not known at this moment")
        if preference.max_draft_tokens == 0 or snapshot.default_draft_tokens == 0:
            return _plain("the draft budget is 0")
        candidates = [group for group in snapshot.drafter_groups if preference.drafter in (None, group.name)]
        live = [group for group in candidates if group.live]
        if not live:
            return _plain(_why_not_live(preference.drafter, candidates))
        budget = preference.max_draft_tokens or snapshot.default_draft_tokens
        allowed = [group for group in live if group.name not in snapshot.disabled_groups]
        if not allowed:
            reason = f"the operator turned drafter group '{live[0].name}' off"
            return Plan(Route.PLAIN, reason, live[0].name, budget)
        group = best_group(allowed)
        return Plan(Route.SPECULATIVE, _why_chosen(group, allowed), group.name, budget)


def best_group(groups: Sequence[DrafterGroupStatus]) -> DrafterGroupStatus:
    """The group that is expected to bring most tokens per second; of equals the first of the configuration.

    One that nothing is known of counts as `UNKNOWN_GAIN`, so the order of the configuration decides as long as nothing
    was measured, and a group that was measured gives way to it only where it brings less.
    """
    return max(groups, key=lambda group: UNKNOWN_GAIN if group.gain is None else group.gain)


def _why_chosen(group: DrafterGroupStatus, allowed: Sequence[DrafterGroupStatus]) -> str:
    if len(allowed) == 1 or group.gain is None:
        return f"drafter group '{group.name}' is live"
    return f"drafter group '{group.name}' is the best live one: {group.gain:.2f} times plain decoding"


def _plain(reason: str) -> Plan:
    return Plan(Route.PLAIN, reason)


def _why_not_live(wanted: str | None, candidates: Sequence[DrafterGroupStatus]) -> str:
    if not candidates:
        return f"no live drafter in group '{wanted}'" if wanted else "no drafter group is deployed"
    details = "; ".join(f"{group.name}: {group.detail or 'no replica'}" for group in candidates)
    return f"no drafter is live ({details})"
