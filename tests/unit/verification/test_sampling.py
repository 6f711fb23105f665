"""Every sampling parameter against a slow, independent definition."""

import math
import random

import pytest
import torch

from paceline.core.sampling_params import SamplingParams
from paceline.errors import EngineFailedError
from paceline.verification.law import TokenLaw
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_law
from reference_law import reference_probabilities

VOCAB = 12
PROMPT, OUTPUT, EOS = (3, 4, 4), (5, 6, 5, 1), (0, 2)
PARAMETERS = {
    "none": SamplingParams(),
    "greedy": SamplingParams(temperature=0.0),
    "greedy with penalties": SamplingParams(temperature=0.0, repetition_penalty=1.5, presence_penalty=0.7),
    "cold": SamplingParams(temperature=0.3),
    "hot": SamplingParams(temperature=2.0),
    "top_k": SamplingParams(top_k=3),
    "top_k of one": SamplingParams(top_k=1),
    "top_k above the vocabulary": SamplingParams(top_k=100),
    "top_p": SamplingParams(top_p=0.7),
    "top_p tiny": SamplingParams(top_p=1e-6),
    "min_p": SamplingParams(min_p=0.2),
    "min_p of one": SamplingParams(min_p=1.0),
    "top_k then top_p": SamplingParams(top_k=4, top_p=0.8),
    "min_p then top_k then top_p": SamplingParams(min_p=0.05, top_k=6, top_p=0.85, temperature=1.4),
    "repetition": SamplingParams(repetition_penalty=1.7),
    "repetition below one": SamplingParams(repetition_penalty=0.6),
    "presence": SamplingParams(presence_penalty=1.1),
    "frequency": SamplingParams(frequency_penalty=0.9),
    "negative penalties": SamplingParams(presence_penalty=-1.1, frequency_penalty=-0.4),
    "bias": SamplingParams(logit_bias=((7, 5.0), (3, -100.0))),
    "bias before repetition": SamplingParams(logit_bias=((5, -3.0), (4, 4.0)), repetition_penalty=2.0),
    "bad word of one token": SamplingParams(bad_words=((8,),)),
    "bad word that would complete": SamplingParams(bad_words=((5, 1, 9),)),
    "bad word that would not complete": SamplingParams(bad_words=((6, 1, 9), (4, 5, 6, 5, 1, 9))),
    "min_tokens not reached": SamplingParams(min_tokens=5, stop_token_ids=(7,)),
    "min_tokens reached": SamplingParams(min_tokens=4, stop_token_ids=(7,)),
    "min_tokens with eos ignored": SamplingParams(min_tokens=5, stop_token_ids=(7,), ignore_eos=True),
    "everything": SamplingParams(
        temperature=0.8,
        top_p=0.9,
        top_k=7,
        min_p=0.01,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        logit_bias=((1, 2.0),),
        bad_words=((1, 7),),
        min_tokens=9,
    ),
}


def state_for(params: SamplingParams, *, output: tuple[int, ...] = OUTPUT) -> SamplerState:
    state = SamplerState(params, prompt_token_ids=PROMPT, eos_token_ids=EOS, seed=1)
    state.commit(output)
    return state


def random_logits(seed: int, *, vocab: int = VOCAB, ties: bool = False) -> torch.Tensor:
    dice = random.Random(seed)
    values = [2 * dice.gauss(0, 1) for _ in range(vocab)]
    return torch.tensor([float(round(v)) for v in values] if ties else values, dtype=torch.float64)


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "tied"])
def test_law_equals_the_reference(name: str, ties: bool) -> None:
    """The law has the reference's probabilities, ties in the logits included."""
    params = PARAMETERS[name]
    for seed in range(25):
        logits = random_logits(seed, ties=ties)
        expected = reference_probabilities(logits.tolist(), params, prompt=PROMPT, output=OUTPUT, eos=EOS)

        assert target_law(logits, state_for(params)).dense(VOCAB).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", PARAMETERS)
def test_logits_are_not_changed(name: str) -> None:
    """The caller's logits survive: logprobs are taken from them later."""
    logits = random_logits(3)
    before = logits.clone()

    target_law(logits, state_for(PARAMETERS[name]))

    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    "params", [SamplingParams(top_p=0.95), SamplingParams(top_p=0.9999), SamplingParams(top_k=200)]
)
def test_large_vocabulary_equals_the_reference(params: SamplingParams) -> None:
    """Truncation that ranks only part of a large vocabulary keeps what a full ranking keeps."""
    for seed in range(3):
        logits = random_logits(seed, vocab=3000, ties=seed == 2)
        expected = reference_probabilities(logits.tolist(), params, prompt=(), output=())

        assert target_law(logits, state_for(params)).dense(3000).tolist() == pytest.approx(expected, abs=1e-12)


def test_greedy_takes_the_lowest_id_of_a_tie() -> None:
    """Equal logits are decided by id, so that greedy text does not depend on the kernel."""
    logits = torch.zeros(5000)
    logits[[4000, 900, 77]] = 3.0

    assert target_law(logits, state_for(SamplingParams(temperature=0.0))).draw(1) == 77


def test_the_token_that_crosses_top_p_is_kept() -> None:
    """The kept mass is the smallest that reaches top_p, never one token less."""
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()

    law = target_law(logits, state_for(SamplingParams(top_p=0.6), output=()))

    assert law.dense(3).tolist() == pytest.approx([0.625, 0.375, 0.0])


def test_a_tiny_temperature_is_greedy_in_the_limit() -> None:
    """A temperature near 0 gives the argmax, not NaN or infinity."""
    logits = torch.tensor([50.0, 49.0, -3.0])

    assert target_law(logits, state_for(SamplingParams(temperature=1e-30), output=())).dense(3).tolist() == [1, 0, 0]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_logits_are_an_error(temperature: float, bad: float) -> None:
    """NaN or infinite logits end the request with a clear error, never with some token."""
    logits = random_logits(0)
    logits[5] = bad

    with pytest.raises(EngineFailedError, match="not finite"):
        target_law(logits, state_for(SamplingParams(temperature=temperature)))


def test_a_fully_masked_row_is_an_error() -> None:
    """Where every id is banned there is no distribution, and the error says so."""
    params = SamplingParams(bad_words=tuple((i,) for i in range(VOCAB)))

    with pytest.raises(EngineFailedError, match="every token is masked"):
        target_law(random_logits(0), state_for(params))


def test_ids_outside_the_vocabulary_change_nothing() -> None:
    """A stop id or bias beyond the head's rows cannot be drawn and does not break the step."""
    params = SamplingParams(logit_bias=((999, 3.0),), bad_words=((500,),), stop_token_ids=(700,), min_tokens=9)
    state = SamplerState(params, prompt_token_ids=(1,), eos_token_ids=(), seed=0)
    logits = random_logits(1)

    assert torch.equal(target_law(logits, state).dense(VOCAB), TokenLaw(logits).dense(VOCAB))
