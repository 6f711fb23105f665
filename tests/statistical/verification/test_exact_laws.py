"""The law of every verifier, computed exactly through the functions that serve."""

import random

import pytest

from enumeration import (
    RESHAPED,
    ChainCase,
    assert_exact,
    chains_ending_at,
    chosen_chain,
    drawn_chains,
    exact_law,
    late_output_law,
    output_law,
    total_variation,
    verdict_law,
)
from known_laws import alternating, fixed
from paceline.core.sampling_params import SamplingParams
from toy_target import hashed_law

VERIFIERS = ("coupled", "rejection", "block")
NUM_RANDOM = 100


def random_case(index: int) -> ChainCase:
    """Prefix-dependent random laws; every third case also truncates, penalises or biases."""
    dice = random.Random(index)
    vocab, depth = dice.choice([(3, 1), (3, 2), (4, 1), (4, 2), (3, 3), (4, 3)])
    scale = dice.choice([0.5, 1.5, 3.0])
    params = SamplingParams(temperature=dice.choice([1.0, 0.6, 1.7]))
    if index % 3 == 0:
        params = dice.choice(RESHAPED)
    return ChainCase(
        vocab,
        depth,
        target=hashed_law(vocab, scale=scale, salt=2 * index),
        draft=hashed_law(vocab, scale=scale, salt=2 * index + 1),
        params=params,
        eos=(vocab - 1,),
        max_law_tokens=dice.choice([64, 2]),
    )


SKEWED = fixed(0.6, 0.3, 0.1)
SPREAD = fixed(0.1, 0.1, 0.8)
EDGE_CASES = {
    "q equals p": ChainCase(3, 3, SKEWED, SKEWED),
    "q is one-hot": ChainCase(3, 2, SKEWED, fixed(0, 0, 1)),
    "q has no mass where p has": ChainCase(3, 2, SKEWED, fixed(0.5, 0.5, 0)),
    "q has mass where p has none": ChainCase(3, 2, fixed(0.5, 0.5, 0), SPREAD),
    "disjoint support": ChainCase(4, 3, fixed(0.5, 0.5, 0, 0), fixed(0, 0, 0.3, 0.7)),
    "p is one-hot": ChainCase(3, 2, fixed(0, 1, 0), SPREAD),
    "p is one-hot on the first draft only": ChainCase(3, 2, alternating(fixed(0, 0, 1), SKEWED), SPREAD),
    "top_p cuts p": ChainCase(3, 3, SKEWED, SPREAD, SamplingParams(top_p=0.7)),
    "top_k leaves one": ChainCase(3, 2, SKEWED, SPREAD, SamplingParams(top_k=1)),
    "equal after the first": ChainCase(3, 3, alternating(SKEWED, SPREAD), alternating(SPREAD, SPREAD)),
}


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_random_chains(verifier: str) -> None:
    """Over random prefix-dependent laws, the emitted tokens and their continuation follow p exactly."""
    for index in range(NUM_RANDOM):
        assert_exact(verifier, random_case(index))


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("name", EDGE_CASES)
def test_edge_laws(verifier: str, name: str) -> None:
    """Laws with zeros, equal laws and one-hot laws change nothing about exactness."""
    assert_exact(verifier, EDGE_CASES[name])


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("index", range(6))
def test_chains_without_laws(verifier: str, index: int) -> None:
    """A draft that was chosen, not drawn, counts as one-hot and leaves the law exact."""
    assert_exact(verifier, random_case(index), chains=chosen_chain)


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("index", range(0, 30, 2))
def test_chains_that_end_at_a_token(verifier: str, index: int) -> None:
    """A drafter may stop behind an end-of-sequence draft: the draft itself is still there to be tested."""
    assert_exact(verifier, random_case(index), chains=chains_ending_at(1))


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("index", range(0, 30, 2))
def test_late_chains(verifier: str, index: int) -> None:
    """The part of a late chain that the committed token confirms may be verified: the law stays exact."""
    case = random_case(index)

    assert total_variation(late_output_law(verifier, case).tokens, exact_law(case)) < 1e-12


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("index", range(0, 30, 3))
def test_a_rejected_draft_is_not_emitted(verifier: str, index: int) -> None:
    """The token after a rejection is never the rejected draft, so drafts left over never fit what is committed."""
    case = random_case(index)
    for _, drafts, laws in drawn_chains(case):
        for verdict, probability in verdict_law(verifier, case.row(case.state(), drafts, laws)).items():
            if verdict.accepted < len(drafts) and probability > 1e-12:
                assert verdict.token_ids[-1] != drafts[verdict.accepted]


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_greedy_requests(verifier: str) -> None:
    """At temperature 0 every verifier emits the argmax path with probability 1."""
    case = ChainCase(4, 3, hashed_law(4, salt=1), hashed_law(4, salt=1), SamplingParams(temperature=0.0))

    assert_exact(verifier, case, chains=chosen_chain)
    assert len(output_law(verifier, case, chains=chosen_chain).tokens) == 1


def test_block_accepts_at_least_as_much_as_rejection() -> None:
    """The mean accepted length of `block` is never below that of `rejection`, and sometimes above."""
    cases = [random_case(index) for index in range(20)] + list(EDGE_CASES.values())
    gains = [output_law("block", case).mean_accepted - output_law("rejection", case).mean_accepted for case in cases]

    assert min(gains) > -1e-12
    assert max(gains) > 0.01
