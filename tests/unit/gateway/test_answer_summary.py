import pytest

from paceline.core.generation import ChoiceStats
from paceline.core.model_identity import ModelIdentity, VocabularyIdentity
from paceline.core.plans import Plan, Route
from paceline.gateway.answer_summary import summarise

IDENTITY = ModelIdentity("tiny", "fp", 512, VocabularyIdentity("v", 300, ()), (2,))


def _summarise(*stats, plan=Plan(Route.SPECULATIVE, "because", "ngram", 5)):  # noqa: B008  # frozen
    return summarise(stats, plan=plan, prompt_tokens=7, seed=3, identity=IDENTITY, verifier="coupled")


def _stats(**changes):
    fields = {
        "prompt_tokens": 7,
        "completion_tokens": 10,
        "rounds": 5,
        "drafted": 8,
        "tested": 6,
        "accepted": 4,
        "drafter": "ngram",
        "switches": 1,
    }
    return ChoiceStats(**fields | changes)


def test_cached_tokens_are_those_that_no_choice_computed():
    """The second choice finds what the first one computed; that is no saving of the request."""
    assert _summarise(_stats(cached_tokens=3), _stats(cached_tokens=6)).cached_tokens == 3
    assert _summarise().cached_tokens == 0


def test_choices_add_up_and_the_prompt_counts_once():
    """Ratios are ratios of sums; rejected drafts are those not kept, tested or not."""
    summary = _summarise(_stats(), _stats(completion_tokens=30, rounds=5, drafted=20, tested=14, accepted=11))

    assert summary.prompt_tokens == 7
    assert summary.completion_tokens == 40
    assert (summary.accepted_tokens, summary.rejected_tokens) == (15, 13)
    assert summary.tau == pytest.approx(40 / 10)
    assert summary.alpha == pytest.approx(15 / 20)
    assert summary.switches == 2


def test_ratios_are_unknown_without_data():
    """No draft tested, no pass made: None, never a number that means nothing."""
    plain = _stats(drafted=0, tested=0, accepted=0, drafter=None)
    assert _summarise(plain).alpha is None
    assert _summarise().tau is None


def test_the_drafter_is_the_one_that_served():
    """An answer that moved to another group names that one, and the plan's where none served."""
    assert _summarise(_stats(drafter="small")).drafter == "small"
    assert _summarise(_stats(drafter=None)).drafter == "ngram"
    assert _summarise(_stats(drafter=None), plan=Plan(Route.PLAIN, "off")).drafter is None


def test_an_answer_is_speculative_if_drafts_were_verified_in_it():
    """Begun while the operator had speculation off: plain without a drafter, unless it was turned on again."""
    off = Plan(Route.PLAIN, "the operator turned speculation off", "ngram", 5)
    plain = _summarise(_stats(drafted=0, tested=0, accepted=0, switches=0), plan=off)
    mixed = _summarise(_stats(), plan=off)

    assert (plain.route, plain.drafter, plain.reason) == (Route.PLAIN, None, off.reason)
    assert (mixed.route, mixed.drafter) == (Route.SPECULATIVE, "ngram")
    assert mixed.reason == "the operator turned speculation off; it was turned on again during the answer"


def test_an_answer_that_goes_on_with_drafts_does_not_call_itself_plain():
    """Its first replica had no drafter, the next one had."""
    summary = _summarise(_stats(), plan=Plan(Route.PLAIN, "no drafter group is live"))

    assert (summary.route, summary.drafter) == (Route.SPECULATIVE, "ngram")
    assert summary.reason == "no drafter group is live; the answer went on with drafts"


def test_resumes_are_the_worst_choices():
    """One resume moves all choices, so they are not added."""
    assert _summarise(_stats(resumed=1), _stats(resumed=1)).resumed == 1
