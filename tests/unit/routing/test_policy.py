"""The router's rule: speculate where a wanted drafter is live, and say why not."""

from paceline.core.load import DrafterGroupStatus
from paceline.core.plans import Route, SpeculationMode, SpeculationPreference
from paceline.routing.policy import UNKNOWN_GAIN, RoutingSnapshot, SpeculateWhenLive, best_group


def decide(preference=None, *, groups=(("ngram", True), ("small", True)), enabled=True, draft_tokens=5, disabled=()):
    statuses = [DrafterGroupStatus(name, name, live, "" if live else "vocabulary differs") for name, live in groups]
    snapshot = RoutingSnapshot(statuses, 0, 0, draft_tokens, enabled, disabled_groups=disabled)
    return SpeculateWhenLive().decide(preference or SpeculationPreference(), snapshot)


def test_auto_takes_the_first_live_group():
    """Without a wish the first group that is live drafts, with the deployment's budget."""
    plan = decide(groups=(("ngram", False), ("small", True)))

    assert (plan.route, plan.drafter, plan.max_draft_tokens) == (Route.SPECULATIVE, "small", 5)


def test_a_wish_is_followed_and_its_budget_too():
    """The named group and the named number of draft tokens are used."""
    plan = decide(SpeculationPreference(SpeculationMode.ON, "small", 2))

    assert (plan.drafter, plan.max_draft_tokens) == ("small", 2)


def test_off_and_the_kill_switch_give_plain_with_different_reasons():
    """Who turned speculation off is said."""
    assert decide(SpeculationPreference(SpeculationMode.OFF)).reason == "the request turned speculation off"
    assert decide(enabled=False).reason == "the operator turned speculation off"


def test_the_operators_off_keeps_the_group_for_later():
    """An answer that begins while it is off may speculate once it is on again; one that asked for off never."""
    by_operator = decide(SpeculationPreference(SpeculationMode.AUTO, "small", 3), enabled=False)
    by_request = decide(SpeculationPreference(SpeculationMode.OFF), enabled=False)

    assert (by_operator.route, by_operator.drafter, by_operator.max_draft_tokens) == (Route.PLAIN, "small", 3)
    assert (by_request.route, by_request.drafter) == (Route.PLAIN, None)


def test_a_group_that_is_turned_off_is_not_chosen():
    """Another live group drafts; whoever wants this one gets a plain answer that says why."""
    chosen = decide(disabled=("ngram",))
    wanted = decide(SpeculationPreference(SpeculationMode.ON, "ngram"), disabled=("ngram",))

    assert (chosen.route, chosen.drafter) == (Route.SPECULATIVE, "small")
    assert (wanted.route, wanted.drafter) == (Route.PLAIN, "ngram")
    assert wanted.reason == "the operator turned drafter group 'ngram' off"


def test_on_without_a_live_drafter_runs_plain_and_names_the_fault():
    """`on` never fails a request; the refusal's field reaches the client."""
    plan = decide(SpeculationPreference(SpeculationMode.ON, "ngram"), groups=(("ngram", False),))

    assert plan.route is Route.PLAIN
    assert "vocabulary differs" in plan.reason


def test_groups_that_nobody_has_reported_are_not_said_to_be_missing():
    """Without a report of any target the reason is that nothing is known, not that nothing is deployed."""
    snapshot = RoutingSnapshot([], 0, 0, 5, speculation_enabled=True, groups_known=False)
    plan = SpeculateWhenLive().decide(SpeculationPreference(SpeculationMode.ON), snapshot)

    assert plan.route is Route.PLAIN
    assert "not known" in plan.reason


def test_no_group_and_no_budget_are_plain():
    """A deployment without drafters, or with budget 0, decodes plainly."""
    assert decide(groups=()).reason == "no drafter group is deployed"
    assert decide(draft_tokens=0).route is Route.PLAIN
    assert decide(SpeculationPreference(max_draft_tokens=0)).route is Route.PLAIN


def rank(*gains):
    groups = [DrafterGroupStatus(f"g{place}", "m", live=True, gain=gain) for place, gain in enumerate(gains)]
    return best_group(groups).name


def test_the_order_of_the_configuration_decides_while_nothing_is_known():
    """And between groups that are worth the same."""
    assert rank(None, None, None) == "g0"
    assert rank(1.5, 1.5) == "g0"
    assert rank(UNKNOWN_GAIN, None) == rank(None, UNKNOWN_GAIN) == "g0"


def test_the_group_that_is_known_to_bring_most_is_taken():
    """Wherever it stands; one that is known to bring little gives way to one that was never tried."""
    assert rank(1.1, 1.9, 1.4) == "g1"
    assert rank(1.9, None) == "g0"
    assert rank(None, 1.9) == "g1"
    assert rank(0.8, None, 1.1) == "g1"
    assert rank(0.8, 1.1, 0.9) == "g1"


def test_on_and_auto_take_the_best_live_group_and_say_so():
    """A group that is not live, or that the operator turned off, is never the best."""
    groups = [
        DrafterGroupStatus("slow", "ngram", live=True, gain=1.05),
        DrafterGroupStatus("dead", "eagle", live=False, gain=3.0),
        DrafterGroupStatus("off", "eagle", live=True, gain=2.5),
        DrafterGroupStatus("good", "eagle", live=True, gain=1.62),
    ]
    snapshot = RoutingSnapshot(groups, 0, 0, 5, speculation_enabled=True, disabled_groups=("off",))
    for mode in (SpeculationMode.ON, SpeculationMode.AUTO):
        plan = SpeculateWhenLive().decide(SpeculationPreference(mode), snapshot)
        assert (plan.drafter, plan.reason) == (
            "good",
            "drafter group 'good' is the best live one: 1.62 times plain decoding",
        )
    wanted = SpeculateWhenLive().decide(SpeculationPreference(SpeculationMode.ON, "slow"), snapshot)
    assert (wanted.drafter, wanted.reason) == ("slow", "drafter group 'slow' is live")
