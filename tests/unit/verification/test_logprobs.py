"""Log-probabilities of the model itself."""

import math

import pytest
import torch

from paceline.verification.logprobs import token_logprob

LOGITS = torch.tensor([1.0, 3.0, 3.0, -2.0, 0.5])
TOTAL = math.log(sum(math.exp(value) for value in LOGITS.tolist()))


def test_logprob_is_log_softmax() -> None:
    """The token's own logprob is that of the logits as they come from the model."""
    assert token_logprob(LOGITS, 4, 0).logprob == pytest.approx(0.5 - TOTAL)
    assert token_logprob(LOGITS, 4, 0).top == ()


def test_top_is_best_first_and_ties_go_by_id() -> None:
    """Alternatives are ordered by logprob, then by id, and may leave the token itself out."""
    top = token_logprob(LOGITS, 3, 3).top

    assert [token_id for token_id, _ in top] == [1, 2, 0]
    assert [logprob for _, logprob in top] == pytest.approx([3 - TOTAL, 3 - TOTAL, 1 - TOTAL])


def test_more_alternatives_than_tokens() -> None:
    """Asking for more than the vocabulary gives all of it."""
    assert len(token_logprob(LOGITS, 0, 20).top) == 5
