"""Answers of the real engine loop, drafted by a remote model over the link, follow the target's exact law."""

import functools
import math

import pytest

from answer_laws import (
    DRAFT_LAW,
    LAW_TOKENS,
    PROMPT,
    TARGET_LAW,
    VOCAB,
    Sample,
    assert_pairs_and_conditionals,
    position_law,
    sample_of,
)
from engine_harness import Harness
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.matching import DrafterFacts
from paceline.engine.waiting import Action, Move
from peers import VOCABULARY, loop_thread, remote
from toy_target import ToyRunner

NUM_REQUESTS = 3500


@functools.cache
def sampled(verifier: str, num_requests: int) -> Sample:
    """Answers of ``num_requests`` seeds, decoded together in batches with a remote draft model."""
    drafter = DraftModelDrafter(
        ToyRunner(DRAFT_LAW, VOCAB, num_pages=4096), eos_token_ids=(), max_law_tokens=LAW_TOKENS
    )
    facts = DrafterFacts("draft_model", "small", VOCABULARY, 1024)
    with loop_thread() as thread, remote(thread, drafter, facts) as link:
        harness = Harness(
            ToyRunner(TARGET_LAW, VOCAB, num_pages=4096),
            {"small": link},
            verifier=verifier,
            local=False,
            max_running=128,
            step_tokens=2048,
            choose=lambda snapshot: Move(Action.WAIT, tuple(range(len(snapshot.outstanding))), 1.0, longest_s=10.0),
        )
        return sample_of(harness, num_requests, "small", max_draft_tokens=3)


def check_law(verifier: str, num_requests: int) -> None:
    """The law holds, and it was put to the test: enough rounds had a rejection."""
    sample = sampled(verifier, num_requests)
    rejected = sum(round_.accepted < len(round_.drafted) for round_ in sample.rounds)

    assert_pairs_and_conditionals(sample.answers)
    assert len(sample.rounds) > num_requests
    assert rejected >= 0.2 * len(sample.rounds)


@pytest.mark.parametrize("verifier", ["rejection", "block", "coupled"])
def test_pairs_and_conditionals_fit_the_target(verifier):
    """With q over the link, top-p on and many rejections, adjacent tokens have the target's law."""
    check_law(verifier, 2000 if verifier == "coupled" else NUM_REQUESTS)


@pytest.mark.full
@pytest.mark.parametrize("verifier", ["rejection", "block", "coupled"])
def test_pairs_and_conditionals_fit_the_target_with_many_samples(verifier):
    """The long form of the same claim."""
    check_law(verifier, 60_000)


def test_tested_alpha_is_the_mean_overlap_of_target_and_draft_law():
    """Under rejection, accepted per tested lies in the 99 % interval around the mean of sum min(p, q)."""
    overlaps, accepted = [], 0
    for round_ in sampled("rejection", NUM_REQUESTS).rounds:
        output = round_.context[len(PROMPT) :]
        for place in range(min(round_.accepted + 1, len(round_.drafted))):
            before = output + round_.drafted[:place]
            p, q = position_law("target", before), position_law("draft", before)
            overlaps.append(sum(min(p.get(token, 0.0), chance) for token, chance in q.items()))
        accepted += round_.accepted
    mean = sum(overlaps) / len(overlaps)
    spread = math.sqrt(sum(overlap * (1 - overlap) for overlap in overlaps)) / len(overlaps)

    assert abs(accepted / len(overlaps) - mean) < 2.576 * spread


def test_block_accepts_at_least_as_much_as_rejection():
    """Mean accepted length of full first rounds: block's is not below rejection's, beyond chance."""
    lengths = {
        name: [r.accepted for r in sampled(name, NUM_REQUESTS).rounds if len(r.context) == len(PROMPT) + 1]
        for name in ("rejection", "block")
    }
    means = {name: sum(values) / len(values) for name, values in lengths.items()}
    spread = math.sqrt(
        sum(sum((v - means[name]) ** 2 for v in values) / len(values) ** 2 for name, values in lengths.items())
    )

    assert means["block"] >= means["rejection"] - 2.576 * spread
