"""Answers of the real engine loop, drafted by a remote model over the link, follow the target's exact law."""

import functools
import math
from collections import Counter, defaultdict
from typing import NamedTuple

import pytest

from chi_square import LEAST_P, fit_p_value
from engine_harness import Harness
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.matching import DrafterFacts
from paceline.verification.draft_draw import wire_law
from paceline.verification.law import sparse_probabilities
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_law
from peers import VOCABULARY, loop_thread, remote
from toy_target import ToyRunner, blended_law, hashed_law

VOCAB = 8
PROMPT = (1, 2)
LENGTH = 5  # one plain token, then rounds of up to 3 drafts
PARAMS = {"temperature": 1.0, "top_p": 0.9, "max_tokens": LENGTH}
TARGET_LAW = hashed_law(VOCAB, scale=1.1, memory=2, salt=1)
DRAFT_LAW = blended_law(TARGET_LAW, hashed_law(VOCAB, scale=1.6, memory=2, salt=2), share=0.55)
LAW_TOKENS = 6  # the drafter's law is truncated on the wire too

Tokens = tuple[int, ...]


class Round(NamedTuple):
    """One round with drafts, and the tokens before it."""

    context: Tokens
    drafted: Tokens
    accepted: int


class Sample(NamedTuple):
    """What one run of the engine gave."""

    answers: list[Tokens]
    rounds: list[Round]


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
            wait_share=1e9,
        )
        keys = [f"r{seed}/1" for seed in range(num_requests)]
        for first in range(0, num_requests, 128):
            for seed in range(first, min(first + 128, num_requests)):
                harness.submit(
                    keys[seed], PROMPT, drafter="small", max_draft_tokens=3, seed=seed, explain=True, **PARAMS
                )
            harness.run()
    return Sample([harness.ids(key) for key in keys], [r for key in keys for r in _rounds(harness, key)])


def _rounds(harness: Harness, key: str) -> list[Round]:
    context, rounds = PROMPT, []
    for chunk in harness.of(key):
        rounds += [Round(context, trace.drafted, trace.accepted) for trace in chunk.rounds if trace.drafted]
        context += chunk.token_ids
    return rounds


@functools.cache
def position_law(law_name: str, output: Tokens) -> dict[int, float]:
    """The exact law after ``output``: the target's, or the one that the drafter sends."""
    state = SamplerState(SamplingParams(**PARAMS), prompt_token_ids=PROMPT, eos_token_ids=(), seed=0)
    state.commit(output)
    logits = (TARGET_LAW if law_name == "target" else DRAFT_LAW)(PROMPT + output)
    law = target_law(logits, state)
    if law_name == "draft":
        ids, chances = sparse_probabilities(wire_law(law, LAW_TOKENS))
        return dict(zip(ids.tolist(), chances.tolist(), strict=True))
    return {token: chance for token, chance in enumerate(law.dense(VOCAB).tolist()) if chance}


@functools.cache
def exact_answers() -> dict[Tokens, float]:
    """Chance of every answer under plain sampling."""
    law: dict[Tokens, float] = {(): 1.0}
    for _ in range(LENGTH):
        law = {
            (*output, token): chance * step
            for output, chance in law.items()
            for token, step in position_law("target", output).items()
        }
    return law


def marginal(law: dict[Tokens, float], start: int, stop: int) -> dict[Tokens, float]:
    """Law of the tokens in ``[start, stop)``."""
    part: defaultdict[Tokens, float] = defaultdict(float)
    for answer, chance in law.items():
        part[answer[start:stop]] += chance
    return part


def assert_pairs_and_conditionals(answers: list[Tokens]) -> None:
    """Raise AssertionError unless all adjacent pairs, triples and conditionals fit the exact law."""
    law = exact_answers()
    checks = {}
    for start, width in [*((start, 2) for start in range(LENGTH - 1)), *((start, 3) for start in range(LENGTH - 2))]:
        counts = Counter(answer[start : start + width] for answer in answers)
        checks[f"tokens {start}..{start + width - 1}"] = fit_p_value(counts, marginal(law, start, start + width))
    for start in range(1, LENGTH - 1):
        pairs = marginal(law, start, start + 2)
        singles = marginal(law, start, start + 1)
        for first in singles:
            counts = Counter(a[start + 1] for a in answers if a[start : start + 1] == first)
            given = {pair[1]: chance / singles[first] for pair, chance in pairs.items() if pair[:1] == first}
            checks[f"token {start + 1} given {first[0]} before"] = fit_p_value(counts, given)
    worst = min(checks, key=checks.__getitem__)
    assert checks[worst] * len(checks) > LEAST_P * 10, f"{worst}: p = {checks[worst]:.2g} of {len(checks)} checks"


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
    check_law(verifier, 6000)


@pytest.mark.full
@pytest.mark.parametrize("verifier", ["rejection", "block", "coupled"])
def test_pairs_and_conditionals_fit_the_target_with_many_samples(verifier):
    """The long form of the same claim."""
    check_law(verifier, 60_000)


def test_tested_alpha_is_the_mean_overlap_of_target_and_draft_law():
    """Under rejection, accepted per tested lies in the 99 % interval around the mean of sum min(p, q)."""
    overlaps, accepted = [], 0
    for round_ in sampled("rejection", 6000).rounds:
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
        name: [r.accepted for r in sampled(name, 6000).rounds if len(r.context) == len(PROMPT) + 1]
        for name in ("rejection", "block")
    }
    means = {name: sum(values) / len(values) for name, values in lengths.items()}
    spread = math.sqrt(
        sum(sum((v - means[name]) ** 2 for v in values) / len(values) ** 2 for name, values in lengths.items())
    )

    assert means["block"] >= means["rejection"] - 2.576 * spread
