"""Plain sampling of a batch: the target's distribution and its draw."""

import pytest

from paceline.verification.verifier import VerifyRow, make_verifier
from step_parts import logits, states

KINDS = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.0},
    "top_k": {"temperature": 0.8, "top_k": 40},
    "top_p": {"temperature": 0.8, "top_p": 0.9},
    "penalties": {"temperature": 1.0, "repetition_penalty": 1.1, "presence_penalty": 0.5},
}


@pytest.mark.parametrize("num_rows", [1, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_sample(benchmark, kind, num_rows):
    """One token for each row."""
    verifier = make_verifier("coupled")
    scores = logits(num_rows)
    rows = [VerifyRow(state, scores[i : i + 1], None) for i, state in enumerate(states(num_rows, **KINDS[kind]))]

    assert len(benchmark(verifier.sample, rows)) == num_rows
