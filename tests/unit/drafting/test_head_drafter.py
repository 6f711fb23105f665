"""Draft heads over histories: what they keep is what a fresh computation would give, and nothing is computed twice."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch

from draft_dialogue import ask, opening, row
from head_drafters import InProcess, LendingTarget, Remote, feature_of, head_runner, with_features
from paceline.core.drafts import DraftProposal, DraftRefusal, FeatureBlock, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.head_drafter import HeadDrafter
from paceline.drafting.static_tree import StaticTree
from paceline.kvcache.page_pool import PagePool
from paceline.modeling.head_runner import HeadRunner
from tiny_models import VOCAB_SIZE

KINDS = ("eagle", "mtp", "mtp-parallel")
TEXT = tuple(random.Random(2).choices(range(VOCAB_SIZE), k=120))


def remote(kind: str, **options: Any) -> tuple[Remote, HeadRunner]:
    runner = head_runner(kind, PagePool(options.pop("num_pages", 64), 4))
    return Remote(HeadDrafter(runner, eos_token_ids=(), **options)), runner


def in_process(kind: str) -> tuple[InProcess, HeadRunner, LendingTarget]:
    runner = head_runner(kind, PagePool(64, 4))
    target = LendingTarget(runner.memory.pool)
    target.memory, target.features = runner.memory, runner.memory.features
    return InProcess(HeadDrafter(runner, eos_token_ids=(), lender=target), target), runner, target


def computed_tokens(runner: HeadRunner) -> list[int]:
    """Tokens of each pass of the first module from now on."""
    counts: list[int] = []
    forward = runner.forward

    def counted(rows, depth=1):
        if depth == 1:
            counts.append(sum(len(row.token_ids) for row, _ in rows))
        return forward(rows, depth)

    runner.forward = counted  # type: ignore[method-assign]
    return counts


@pytest.mark.parametrize("place", ["in process", "remote"])
@pytest.mark.parametrize("kind", KINDS)
def test_kv_after_any_history_are_those_of_a_fresh_computation(kind: str, place: str) -> None:
    """Accepted and rejected paths, cuts and long catch-ups leave the K/V of the committed text."""
    rng = random.Random(4)
    drafter, runner = remote(kind) if place == "remote" else in_process(kind)[:2]
    drafter.open([opening()])
    tokens, base = HashedTokens(TEXT[:20]), 0
    for _ in range(15):
        proposal = ask(drafter, row(tokens, base, depth=3, nodes=6, top_k=2))
        assert isinstance(proposal, DraftProposal)
        if rng.random() < 0.2:
            tokens.truncate(len(tokens) - 4)
        base = len(tokens)
        tokens.extend(proposal.tree.token_ids[: rng.randrange(2)])
        tokens.extend(rng.choices(range(VOCAB_SIZE), k=rng.choice((1, 2, 19))))
        if len(tokens) > 100:
            tokens.truncate(30)
            base = 30
            tokens.extend([1])
    last = ask(drafter, row(tokens, base, depth=3, nodes=6, top_k=2))
    fresh_drafter, fresh = remote(kind)
    fresh_drafter.open([opening()])
    first = ask(fresh_drafter, row(tokens, 0, depth=3, nodes=6, top_k=2))
    assert isinstance(last, DraftProposal)
    assert isinstance(first, DraftProposal)
    assert last.tree == first.tree
    for layer in range(runner.spec.num_kv_layers):
        ours, theirs = (
            torch.cat(one.memory.store.read(layer, _slots(one, other, len(tokens))))
            for one, other in ((runner, drafter), (fresh, fresh_drafter))
        )
        assert torch.allclose(ours, theirs, atol=1e-5)


def _slots(runner: HeadRunner, drafter: InProcess | Remote, length: int) -> torch.Tensor:
    """Slots of the tokens that every module has in its context, the newest left out: its page may be gone."""
    table = drafter.inner._sessions.get("s").table
    return torch.from_numpy(table.slot_array(length - 1)[runner.spec.num_modules :].astype(np.int64))


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_computes_what_is_new_and_the_drafts(kind: str) -> None:
    """Three committed tokens are three tokens of the context; nothing before them is touched by a single module."""
    drafter, runner = remote(kind)
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:40])
    ask(drafter, row(tokens, 0, depth=2))
    counts = computed_tokens(runner)
    tokens.extend(TEXT[40:43])
    ask(drafter, row(tokens, 40, depth=2))
    earlier = runner.spec.num_modules - 1 if kind == "mtp" else 0
    assert counts[0] == 3 + earlier


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_tree_takes_the_place_of_dynamic_ones(kind: str) -> None:
    """Its best nodes within the budget are drafted, whatever the head says; as a chain where chains are asked for."""
    tree = StaticTree([(0,), (1,), (0, 0), (2,), (1, 0)])
    drafter, _ = remote(kind, tree=tree)
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:40])
    drafted = ask(drafter, row(tokens, 0, depth=2, nodes=4, top_k=3))
    tokens.extend(TEXT[40:41])
    chained = ask(drafter, row(tokens, 40, depth=2, nodes=2, top_k=1))
    assert isinstance(drafted, DraftProposal)
    assert isinstance(chained, DraftProposal)
    assert drafted.tree.parents == (-1, -1, -1, 0)
    assert chained.tree.is_chain
    assert len(chained.tree) == 2


def test_a_sequence_that_slept_computes_what_is_not_there() -> None:
    """Pages that come back with their head K/V need nothing; lost ones are computed again, and only those."""
    drafter, runner, target = in_process("eagle")
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:41])
    before = ask(drafter, row(tokens, 0, depth=3))
    shared = target.tables["s"].pages[:6].copy()  # 24 tokens, kept as the prefix cache keeps them
    runner.memory.pool.retain(shared)
    target.sleep("s")
    target.resume("s", TEXT[:24], shared)
    counts = computed_tokens(runner)
    after = ask(drafter, row(tokens, 41, depth=3))
    assert isinstance(before, DraftProposal)
    assert isinstance(after, DraftProposal)
    assert after.tree == before.tree
    assert sum(counts) == (41 - 24) + 2  # then two levels of drafts


def test_a_context_starts_where_its_features_do() -> None:
    """Without the features of a part, the head sees what came after it, at the positions that it has."""
    drafter, _ = remote("eagle")
    inner = drafter.inner
    inner.open([opening()])
    tokens = HashedTokens(TEXT[:30])
    bare = row(tokens, 0, depth=0)
    inner.request([bare])
    assert len(inner.collect(0.0)[0].tree) == 0
    nothing = ask(inner, row(tokens, 30, depth=3))
    assert isinstance(nothing, DraftProposal)
    assert len(nothing.tree) == 0
    tokens.extend(TEXT[30:50])
    late = ask(inner, with_features(row(tokens, 30, depth=3), tokens))
    assert isinstance(late, DraftProposal)
    assert len(late.tree) == 3
    assert inner._sessions.get("s").first == 30


def test_features_that_come_later_widen_the_context() -> None:
    """A resent text with its features gives the drafts of one that came with them at once."""
    drafter, _ = remote("eagle")
    inner = drafter.inner
    inner.open([opening("late"), opening("whole")])
    tokens = HashedTokens(TEXT[:40])
    ask(inner, row(tokens, 0, depth=0, session="late"))
    resent = ask(inner, with_features(row(tokens, 0, depth=4, session="late"), tokens))
    whole = ask(inner, with_features(row(tokens, 0, depth=4, session="whole"), tokens))
    assert isinstance(resent, DraftProposal)
    assert isinstance(whole, DraftProposal)
    assert resent.tree == whole.tree


@pytest.mark.parametrize("kind", KINDS)
def test_every_module_sees_a_context_that_was_widened(kind: str) -> None:
    """Later modules begin later: where the context starts earlier than before, they have tokens to make up for."""
    drafter, runner = remote(kind)
    other, fresh = remote(kind)
    tokens = HashedTokens(TEXT[:40])
    narrow = row(tokens, 0, depth=2)
    block = with_features(narrow, tokens).features
    assert block is not None
    last = FeatureBlock(10, block.data[-10 * len(block.data) // block.count :])
    for one in (drafter, other):
        one.open([opening()])
    ask(drafter.inner, dataclasses.replace(narrow, features=last))
    ask(drafter, narrow)
    ask(other, narrow)
    for layer in range(runner.spec.num_kv_layers):
        ours, theirs = (
            torch.cat(one.memory.store.read(layer, _slots(one, its, 40)))
            for one, its in ((runner, drafter), (fresh, other))
        )
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_pages_of_idle_sessions_are_taken_and_such_a_session_syncs_again() -> None:
    """Features are nowhere else, so a session that lost its pages asks for its whole text."""
    drafter, _ = remote("eagle", num_pages=16)
    drafter.open([opening("a"), opening("b")])
    tokens = HashedTokens(TEXT[:40])
    assert isinstance(ask(drafter, row(tokens, 0, depth=2, session="a")), DraftProposal)
    assert isinstance(ask(drafter, row(tokens, 0, depth=2, session="b")), DraftProposal)
    assert ask(drafter, row(tokens, 40, depth=2, session="a")) == NeedSync("a", 0)
    assert isinstance(ask(drafter, row(tokens, 0, depth=2, session="a")), DraftProposal)
    too_long = ask(drafter, row(HashedTokens(TEXT[:100]), 0, depth=2, session="a"))
    assert isinstance(too_long, DraftRefusal)
    assert too_long.reason == "KV_FULL"


@pytest.mark.parametrize(("length", "nodes"), [(100, 2), (20, 1000)], ids=["text", "budget"])
def test_what_can_never_fit_takes_no_pages_from_others(length: int, nodes: int) -> None:
    """Features come once, so pages are taken from idle sessions only where that helps."""
    drafter, _ = remote("eagle", num_pages=16)
    drafter.open([opening("a"), opening("b")])
    tokens = HashedTokens(TEXT[:20])
    ask(drafter, row(tokens, 0, depth=2, session="a"))
    refused = ask(drafter, row(HashedTokens(TEXT[:length]), 0, depth=2, nodes=nodes, top_k=2, session="b"))
    assert refused == DraftRefusal("b", "KV_FULL")
    assert isinstance(ask(drafter, row(tokens, 20, depth=2, session="a")), DraftProposal)


def test_a_refused_part_is_not_asked_for_again_by_the_part_behind_it() -> None:
    """What stands behind a part that there was no room for is missed too, but sending it all again would not help."""
    drafter, _ = remote("eagle", num_pages=16)
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:70])
    first = row(tokens, 0, depth=0)
    tokens.extend(TEXT[70:72])
    drafter.request([first, row(tokens, 70, depth=2)])
    assert drafter.collect(0.0) == [DraftRefusal("s", "KV_FULL")]


def test_the_feature_of_a_token_is_that_of_the_token_before_it() -> None:
    """The fixture and the drafter agree on who a feature belongs to."""
    drafter, runner = remote("eagle")
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:12])
    ask(drafter, row(tokens, 0, depth=1))
    table = drafter.inner._sessions.get("s").table
    slot = torch.tensor(table.slots(6, 7))
    assert torch.equal(runner.memory.features.read(slot)[0], feature_of(TEXT[:7]))
    assert isinstance(with_features(row(tokens, 0, depth=1), tokens).features, FeatureBlock)
