"""How drafters draw."""

import math

import pytest
import torch

from paceline.core.drafts import DrawRule, SparseLaw
from paceline.core.sampling_params import SamplingParams
from paceline.verification.draft_draw import draft_choice, wire_law
from paceline.verification.law import TokenLaw
from paceline.verification.sampler_state import SamplerState
from paceline.verification.verifier import VerifyRow, make_verifier

LOGITS = torch.linspace(2, -2, 50)


def state_for(seed: int, **params: float) -> SamplerState:
    return SamplerState(SamplingParams(**params), prompt_token_ids=(1, 2, 3), eos_token_ids=(), seed=seed)


def choose(state: SamplerState, rule: DrawRule, *, round_start: int = 3, max_law_tokens: int = 64):
    return draft_choice(LOGITS, state, rule=rule, round_start=round_start, max_law_tokens=max_law_tokens)


def test_coupled_draft_is_the_target_token() -> None:
    """With equal logits a coupled drafter draws what the target will draw, and sends no law."""
    for seed in range(50):
        row = VerifyRow(state_for(seed), LOGITS[None, :], None)
        expected = make_verifier("coupled").sample([row])[0].token_ids[0]

        assert choose(state_for(seed), DrawRule.COUPLED) == (expected, None)


def test_independent_draft_is_drawn_from_the_law_that_is_sent() -> None:
    """Only the likeliest ids are in the law, and every draft is one of them."""
    drafts = []
    for seed in range(200):
        token_id, law = choose(state_for(seed), DrawRule.INDEPENDENT, max_law_tokens=5)
        drafts.append(token_id)

        assert law is not None
        assert law.token_ids == (0, 1, 2, 3, 4)
        assert sum(law.probabilities) == pytest.approx(1.0, abs=1e-6)
    assert set(drafts) == {0, 1, 2, 3, 4}


def test_independent_draft_differs_from_round_to_round() -> None:
    """A new round draws anew at the same position; the same round repeats its draft."""
    state = state_for(1)
    by_round = [choose(state, DrawRule.INDEPENDENT, round_start=start)[0] for start in range(30)]

    assert len(set(by_round)) > 1
    assert by_round == [choose(state, DrawRule.INDEPENDENT, round_start=start)[0] for start in range(30)]


@pytest.mark.parametrize("rule", list(DrawRule))
def test_greedy_drafts_are_the_argmax_without_a_law(rule: DrawRule) -> None:
    """A greedy request needs no law: its drafts are chosen, not drawn."""
    assert choose(state_for(1, temperature=0.0), rule) == (0, None)


def test_wire_values_are_float32() -> None:
    """What is drawn from has exactly the precision that travels."""
    law = wire_law(TokenLaw(LOGITS), 7)

    assert torch.tensor(law.probabilities, dtype=torch.float32).double().tolist() == list(law.probabilities)


def test_ids_that_round_to_zero_do_not_travel() -> None:
    """An id whose float32 probability is 0 is not part of the law."""
    law = wire_law(TokenLaw(torch.tensor([0.0, -300.0, -math.inf], dtype=torch.float64)), 3)

    assert law == SparseLaw((0,), (1.0,))
