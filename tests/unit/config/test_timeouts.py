import pytest

from paceline.config.schema import GatewayConfig, TargetConfig
from paceline.config.timeouts import MOVE_S, derive_timeouts

_CASES = [
    pytest.param(GatewayConfig(), TargetConfig(), id="default"),
    pytest.param(GatewayConfig(request_timeout_s=2.0), TargetConfig(), id="short-answers"),
    pytest.param(GatewayConfig(request_timeout_s=3600.0), TargetConfig(migrate_after_s=0.0), id="moves-at-once"),
    pytest.param(GatewayConfig(), TargetConfig(migrate_after_s=10_000.0), id="never-moves"),
]


@pytest.mark.parametrize(("gateway", "target"), _CASES)
def test_a_gateway_outlives_the_longest_answer(gateway, target):
    """Nobody else holds its clients' connections."""
    assert derive_timeouts(gateway, target).gateway_stop_s > gateway.request_timeout_s


@pytest.mark.parametrize(("gateway", "target"), _CASES)
def test_a_target_is_there_until_its_answers_have_moved_and_not_for_longer(gateway, target):
    """Ray Serve kills it then, whatever still runs there."""
    stop_s = derive_timeouts(gateway, target).target_stop_s

    assert stop_s >= min(target.migrate_after_s, gateway.request_timeout_s) + MOVE_S
    assert stop_s <= target.migrate_after_s + MOVE_S
    assert stop_s <= gateway.request_timeout_s + MOVE_S


@pytest.mark.parametrize(("gateway", "target"), _CASES)
def test_a_hold_that_nobody_uses_ends_before_its_target_is_killed(gateway, target):
    """A gateway that died between hold and stream must not cost a target its orderly end."""
    timeouts = derive_timeouts(gateway, target)

    assert 0 < timeouts.hold_open_s < timeouts.target_stop_s
    assert timeouts.hold_open_s <= gateway.request_timeout_s
