"""Ratios of a choice."""

from paceline.core.generation import ChoiceStats


def stats(**changes):
    values = {
        "prompt_tokens": 3, "completion_tokens": 12, "rounds": 4, "drafted": 10, "tested": 8, "accepted": 6,
        "drafter": "ngram", "switches": 0,
    }  # fmt: skip
    return ChoiceStats(**{**values, **changes})


def test_tau_counts_tokens_per_pass_and_alpha_accepted_per_tested():
    """Untested drafts do not lower alpha; the target's own token counts for tau."""
    assert stats().tau == 3.0
    assert stats().alpha == 0.75


def test_ratios_are_unknown_without_data():
    """Nothing tested and no pass: None, never NaN."""
    assert stats(tested=0, accepted=0).alpha is None
    assert stats(rounds=0).tau is None
