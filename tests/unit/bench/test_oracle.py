"""A drafter whose acceptance is a setting."""

import pytest

from paceline.bench.oracle import OracleDrafter, expected_tau
from paceline.core.drafts import DraftBudget, DraftOpening, DraftProposal, DraftRequest, DrawRule, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams


def _open(oracle):
    oracle.open([DraftOpening("s", SamplingParams(), 1, 0, DrawRule.COUPLED)])


def _ask(oracle, token_ids=(1, 2, 3), *, depth=4):
    oracle.request([DraftRequest("s", 0, HashedTokens().hash_at(0), token_ids, DraftBudget(depth, depth))])
    (reply,) = oracle.collect(0.0)
    return reply


def test_the_share_of_right_drafts_is_alpha():
    """Over many drafts, and the budget is kept."""
    oracle = OracleDrafter(7, alpha=0.7)
    _open(oracle)
    drafts = [token_id for _ in range(2000) for token_id in _ask(oracle, depth=3).tree.token_ids]

    assert len(drafts) == 6000
    assert drafts.count(7) / len(drafts) == pytest.approx(0.7, abs=0.02)


def test_proposals_belong_to_the_context_that_was_sent():
    """Length and hash say which; a context that it has not seen is asked for."""
    oracle = OracleDrafter(7, alpha=1.0)
    _open(oracle)
    reply = _ask(oracle)

    assert isinstance(reply, DraftProposal)
    assert (reply.base_length, reply.base_hash) == (3, HashedTokens((1, 2, 3)).hash_at(3))
    oracle.request([DraftRequest("s", 9, 0, (4,), DraftBudget(2, 2))])
    assert oracle.num_pending == 1
    assert oracle.collect(0.0) == [NeedSync("s", 3)]


def test_expected_tau_is_the_geometric_sum():
    """Equation 1 of Leviathan et al. 2023."""
    assert expected_tau(0.8, 4) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
    assert expected_tau(1.0, 3) == 4.0
