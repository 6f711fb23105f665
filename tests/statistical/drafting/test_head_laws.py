"""Answers of the real engine loop, drafted by heads whose laws are known, follow the target's exact law."""

import functools

import pytest

from answer_laws import DRAFT_LAW, LAW_TOKENS, TARGET_LAW, VOCAB, Sample, assert_pairs_and_conditionals, sample_of
from engine_harness import Harness
from paceline.drafting import tree_growth
from toy_heads import HeadedRunner, toy_head_drafter

CHAIN, TREE = 1, 3
NODES = {CHAIN: 3, TREE: 8}
SOME = (0, 1, 3, 4, 6, 7)  # of the 8 ids; the target's law has mass on the others too
KINDS = ("eagle", "mtp", "mtp-parallel", "medusa")


@functools.cache
def sampled(kind: str, verifier: str, top_k: int, ids: tuple[int, ...] | None, num_requests: int) -> Sample:
    """Answers of ``num_requests`` seeds, decoded together in batches."""
    runner = HeadedRunner(TARGET_LAW, VOCAB, num_pages=4096)
    drafter, lender = toy_head_drafter(kind, DRAFT_LAW, runner, ids=ids, max_law_tokens=LAW_TOKENS)
    harness = Harness(
        runner,
        {"head": drafter},
        verifier=verifier,
        max_running=128,
        step_tokens=2048,
        max_draft_tokens=NODES[top_k],
        top_k=top_k,
    )
    lender.scheduler = harness.scheduler
    return sample_of(harness, num_requests, "head", NODES[top_k])


def check_law(
    kind: str, verifier: str, top_k: int, *, ids: tuple[int, ...] | None = None, num_requests: int = 800
) -> None:
    """The law holds, and it was put to the test: drafts were kept, and as many rounds had a rejection."""
    sample = sampled(kind, verifier, top_k, ids, num_requests)
    accepted = sum(round_.accepted > 0 for round_ in sample.rounds)
    rejected = sum(round_.accepted < len(round_.drafted) for round_ in sample.rounds)

    assert_pairs_and_conditionals(sample.answers)
    assert len(sample.rounds) > num_requests
    assert accepted > 0.15 * len(sample.rounds)
    assert rejected > 0.2 * len(sample.rounds)


@pytest.mark.parametrize(
    ("kind", "verifier", "top_k"),
    [
        ("eagle", "rejection", TREE),
        ("eagle", "block", CHAIN),
        ("mtp", "rejection", CHAIN),
        ("mtp-parallel", "block", CHAIN),
        ("medusa", "rejection", TREE),
    ],
)
def test_pairs_and_conditionals_fit_the_target(kind: str, verifier: str, top_k: int) -> None:
    """Drawn siblings and drawn chains with their laws: adjacent tokens have the target's law."""
    check_law(kind, verifier, top_k)


def test_a_reduced_draft_vocabulary_keeps_the_law() -> None:
    """Tokens that a head cannot draft come as often as the target says."""
    check_law("eagle", "rejection", TREE, ids=SOME)


def test_laws_of_another_depth_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has the power to find a head whose drafts were not drawn from the laws that it sends."""
    drawn = tree_growth.draft_children
    monkeypatch.setattr(
        tree_growth,
        "draft_children",
        lambda logits, state, **options: drawn(logits, state, **options)._replace(
            law=drawn(0.3 * logits, state, **options).law
        ),
    )
    sampled.cache_clear()
    with pytest.raises(AssertionError, match="p = "):
        check_law("eagle", "rejection", TREE)
    sampled.cache_clear()


@pytest.mark.full
@pytest.mark.parametrize(
    ("verifier", "top_k"), [("rejection", CHAIN), ("rejection", TREE), ("block", CHAIN), ("coupled", TREE)]
)
@pytest.mark.parametrize("ids", [None, SOME], ids=["whole", "reduced"])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_and_conditionals_fit_the_target_with_many_samples(
    kind: str, ids: tuple[int, ...] | None, verifier: str, top_k: int
) -> None:
    """The long form of the same claims."""
    check_law(kind, verifier, top_k, ids=ids, num_requests=20_000)
