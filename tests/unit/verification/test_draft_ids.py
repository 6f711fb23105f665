"""Laws over a reduced draft vocabulary."""

import random

import pytest
import torch

from paceline.core.drafts import DrawRule
from paceline.core.sampling_params import SamplingParams
from paceline.errors import EngineFailedError
from paceline.verification.draft_draw import draft_children
from paceline.verification.draft_ids import DraftIds
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_law

VOCAB = 60
IDS = tuple(range(3, VOCAB, 4))
SETTINGS = {
    "plain": SamplingParams(temperature=1.0),
    "warped": SamplingParams(temperature=0.7, top_k=9, top_p=0.9, min_p=0.01),
    "edited": SamplingParams(
        temperature=1.0,
        logit_bias=((7, 3.0), (8, 50.0), (11, -2.0)),
        repetition_penalty=1.4,
        presence_penalty=0.5,
        frequency_penalty=0.3,
        bad_words=((15, 19), (23,), (1,)),
        min_tokens=20,
        stop_token_ids=(31, 32),
    ),
    "greedy": SamplingParams(temperature=0.0, logit_bias=((8, 50.0),)),
}


def _state(params: SamplingParams, seed: int) -> SamplerState:
    rng = random.Random(seed)
    state = SamplerState(
        params, prompt_token_ids=rng.choices(range(VOCAB), k=9), eos_token_ids=(3,), seed=seed, choice=0
    )
    state.commit([*rng.choices(range(VOCAB), k=8), 15])
    return state


def _logits(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the draft vocabulary, and the same with -inf for all other ids."""
    few = torch.randn(len(IDS), generator=torch.Generator().manual_seed(seed))
    wide = torch.full((VOCAB,), -torch.inf)
    wide[list(IDS)] = few
    return few, wide


@pytest.mark.parametrize("name", SETTINGS)
def test_a_law_over_few_ids_is_the_law_of_all_with_the_others_at_zero(name: str) -> None:
    """Bias, penalties, bans and truncations act on the true ids, whichever logits stand for them."""
    for seed in range(20):
        few, wide = _logits(seed)
        law = DraftIds(IDS).law(few, _state(SETTINGS[name], seed))
        full = target_law(wide, _state(SETTINGS[name], seed))
        assert torch.allclose(law.dense(VOCAB), full.dense(VOCAB), atol=1e-9)


@pytest.mark.parametrize("rule", DrawRule)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_drafts_over_few_ids_are_those_over_all(name: str, count: int, rule: DrawRule) -> None:
    """The same tokens, noise of the true ids included, at the same cost and with the same law."""
    for seed in range(20):
        few, wide = _logits(seed)
        state = _state(SETTINGS[name], seed)
        drawn = draft_children(
            few, state, rule=rule, round_start=3, max_law_tokens=8, count=count, draft_ids=DraftIds(IDS)
        )
        full = draft_children(wide, state, rule=rule, round_start=3, max_law_tokens=8, count=count)
        assert drawn.token_ids == full.token_ids
        assert drawn.costs == pytest.approx(full.costs)
        assert (drawn.law is None) == (full.law is None)
        if drawn.law is not None and full.law is not None:
            assert drawn.law.token_ids == full.law.token_ids
            assert drawn.law.probabilities == pytest.approx(full.law.probabilities)


def test_a_vocabulary_that_is_all_banned_has_no_law() -> None:
    """The drafter is told, and stops there."""
    params = SamplingParams(temperature=1.0, bad_words=tuple((token_id,) for token_id in IDS))
    with pytest.raises(EngineFailedError, match="masked"):
        DraftIds(IDS).law(_logits(0)[0], _state(params, 0))
