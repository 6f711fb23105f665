"""Answers of the engine loop, drafted in trees by a model, follow the target's exact law."""

import functools
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest

from answer_laws import (
    DRAFT_LAW,
    LAW_TOKENS,
    PROMPT,
    TARGET_LAW,
    VOCAB,
    Law,
    Round,
    Sample,
    assert_pairs_and_conditionals,
    position_law,
    sample_of,
)
from engine_harness import Harness
from paceline.core.drafts import DraftProposal, DraftReply, DraftRequest, DraftTree
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.engine import speculation
from toy_target import ToyRunner

NODES = 8
TOP_K = 3


class LateDrafter(DraftModelDrafter):
    """Every reply comes one step after it is ready, so that every proposal is re-rooted or dropped."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self._held: list[DraftReply] = []

    def collect(self, timeout_s: float) -> list[DraftReply]:
        held, self._held = self._held, super().collect(timeout_s)
        return held


class UnreliableDrafter(DraftModelDrafter):
    """Loses sessions and replies, sends others late or twice; never by looking at what was drawn."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self._rng = random.Random(5)
        self._tick = 0
        self._held: list[tuple[int, DraftReply]] = []  # with the call of `collect` that brings it

    def request(self, rows: Sequence[DraftRequest]) -> None:
        self.close([row.session for row in rows if self._rng.random() < 0.05])
        super().request(rows)

    def collect(self, timeout_s: float) -> list[DraftReply]:
        self._tick += 1
        for reply in super().collect(timeout_s):
            drafts = isinstance(reply, DraftProposal) and len(reply.tree)
            fate = self._rng.random() if drafts else 0.5
            if fate > 0.15:
                self._held.append((self._tick + (self._rng.choice((0, 0, 1, 2, 3)) if drafts else 0), reply))
            if fate > 0.7:
                self._held.append((self._tick + self._rng.choice((1, 2, 3, 4)), reply))
        ready = [reply for tick, reply in self._held if tick <= self._tick]
        self._held = [(tick, reply) for tick, reply in self._held if tick > self._tick]
        return ready


class PruningDrafter(DraftModelDrafter):
    """Shows no draft that its own law finds unlikely: what was drawn decides what is used, which is wrong."""

    def collect(self, timeout_s: float) -> list[DraftReply]:
        return [self._pruned(r) if isinstance(r, DraftProposal) else r for r in super().collect(timeout_s)]

    @staticmethod
    def _pruned(proposal: DraftProposal) -> DraftProposal:
        tree, kept = proposal.tree, [-1]
        for node, (token_id, law) in enumerate(zip(tree.token_ids, proposal.laws, strict=True)):
            chance = dict(zip(law.token_ids, law.probabilities, strict=True))[token_id]
            if tree.parents[node] in kept and chance > 0.3:
                kept.append(node)
        nodes = kept[1:]
        parents = tuple(kept.index(tree.parents[node]) - 1 for node in nodes)
        return replace(
            proposal,
            tree=DraftTree(tuple(tree.token_ids[node] for node in nodes), parents),
            laws=tuple(proposal.laws[node] for node in nodes),
        )


@functools.cache
def sampled(
    verifier: str, num_requests: int, *, made: type[DraftModelDrafter] = DraftModelDrafter, adaptive: bool = False
) -> Sample:
    """Answers of ``num_requests`` seeds."""
    drafter = made(ToyRunner(DRAFT_LAW, VOCAB, num_pages=8192), eos_token_ids=(), max_law_tokens=LAW_TOKENS)
    harness = Harness(
        ToyRunner(TARGET_LAW, VOCAB, num_pages=8192),
        {"trees": drafter},
        verifier=verifier,
        max_running=128,
        step_tokens=2048,
        max_draft_tokens=NODES,
        top_k=TOP_K,
        adaptive=adaptive,
    )
    sample = sample_of(harness, num_requests, "trees", NODES)
    assert made is not LateDrafter or harness.counted("REROOTED_DRAFTS", group="trees") > num_requests / 10
    return sample


def check_law(sample: Sample) -> None:
    """The law holds, and trees put it to the test: siblings behind the first were taken, others all rejected."""
    trees = [r for r in sample.rounds if r.parents]
    later = sum(node != min(tree_of(r).children(r.parents[node])) for r in trees for node in r.path)
    rejected = sum(r.accepted < max(tree_of(r).depths) for r in trees)

    assert_pairs_and_conditionals(sample.answers)
    assert len(trees) > 0.25 * len(sample.answers)
    assert later > 0.05 * len(trees)
    assert rejected > 0.2 * len(trees)


def tree_of(round_: Round) -> DraftTree:
    parents = round_.parents or DraftTree.chain(round_.drafted).parents
    return DraftTree(round_.drafted, parents)


@pytest.mark.parametrize("verifier", ["rejection", "coupled"])
def test_pairs_and_conditionals_fit_the_target(verifier):
    """Drawn siblings with their laws, or children by shared noise: adjacent tokens have the target's law."""
    check_law(sampled(verifier, 3000 if verifier == "rejection" else 1000))


def test_sub_trees_that_come_late_keep_the_law():
    """Under rejection, what is left of a tree below the tokens committed meanwhile is verified exactly."""
    check_law(sampled("rejection", 2000, made=LateDrafter))


def test_depths_that_follow_what_was_accepted_keep_the_law(monkeypatch):
    """However wildly depths depend on the rounds before, under rejection too: they are fixed before the draw."""

    def wild(prospects, num_plain, pass_s, draft_s):
        return [1 + math.floor(1e4 * prospect.reach[0]) % len(prospect.reach) for prospect in prospects]

    monkeypatch.setattr(speculation, "best_depths", wild)
    sample = sampled("rejection", 1500, adaptive=True)

    assert len({max(tree_of(r).depths, default=0) for r in sample.rounds}) > 2
    assert_pairs_and_conditionals(sample.answers)


@pytest.mark.full
@pytest.mark.parametrize("verifier", ["rejection", "coupled"])
def test_an_unreliable_drafter_keeps_the_law(verifier, monkeypatch):
    """Lost sessions, lost, late and doubled replies, random cuts and depths cost drafts, never the law."""
    rng = random.Random(1)
    shorten = speculation.shorten

    def cut(proposal, *, max_nodes, max_depth):
        return shorten(
            proposal,
            max_nodes=min(max_nodes, rng.choice((1, 2, 3, 5, 8))),
            max_depth=min(max_depth, rng.choice((1, 2, 4))),
        )

    monkeypatch.setattr(speculation, "shorten", cut)
    monkeypatch.setattr(
        speculation,
        "best_depths",
        lambda prospects, num_plain, pass_s, draft_s: [rng.randint(0, min(4, len(p.reach))) for p in prospects],
    )
    sample = sampled(verifier, 4000, made=UnreliableDrafter, adaptive=True)

    assert len(sample.rounds) > 1000
    assert_pairs_and_conditionals(sample.answers)


def test_a_tree_pruned_by_what_was_drawn_is_seen():
    """The check has the power to find a drafter that breaks the rule."""
    with pytest.raises(AssertionError, match="p = "):
        assert_pairs_and_conditionals(sampled("rejection", 1200, made=PruningDrafter).answers)


@pytest.mark.full
@pytest.mark.parametrize("made", [DraftModelDrafter, LateDrafter])
@pytest.mark.parametrize("verifier", ["rejection", "coupled"])
def test_pairs_and_conditionals_fit_the_target_with_many_samples(verifier, made):
    """The long form of the same claims."""
    check_law(sampled(verifier, 50_000, made=made))


@functools.cache
def acceptance(output: tuple[int, ...], num_siblings: int) -> float:
    """Chance that one of ``num_siblings`` drafts, drawn without replacement after ``output``, is accepted."""
    return _acceptance(position_law("target", output), position_law("draft", output), num_siblings)


def _acceptance(target: Law, draft: Law, num_siblings: int) -> float:
    if not num_siblings or not draft:
        return 0.0
    left = {token: max(0.0, chance - draft.get(token, 0.0)) for token, chance in target.items()}
    mass = sum(left.values())
    residual = {token: chance / mass for token, chance in left.items()} if mass > 1e-12 else target
    total = 0.0
    for token, chance in draft.items():
        accepted = min(1.0, target.get(token, 0.0) / chance)
        rest = {other: share / (1 - chance) for other, share in draft.items() if other != token} if chance < 1 else {}
        later = _acceptance(residual, rest, num_siblings - 1) if accepted < 1 else 0.0
        total += chance * (accepted + (1 - accepted) * later)
    return total


def nodes_tested(rounds: Sequence[Round]):
    """(level, output before the siblings, number of siblings, whether one was accepted) of all that were tested."""
    for round_ in rounds:
        tree, output = tree_of(round_), round_.context[len(PROMPT) :]
        path = round_.path if round_.parents else tuple(range(round_.accepted))
        for level, node in enumerate((-1, *path)):
            siblings = tree.children(node)
            if siblings:
                before = output + tuple(round_.drafted[n] for n in path[:level])
                yield level, before, len(siblings), level < len(path)


def test_alpha_by_level_is_the_chance_that_recursive_rejection_has():
    """At every level accepted over tested is the mean of the exact chance given target law, draft law and siblings."""
    expected: dict[int, list[float]] = defaultdict(list)
    accepted: dict[int, int] = defaultdict(int)
    for level, output, siblings, hit in nodes_tested(sampled("rejection", 3000).rounds):
        expected[level].append(acceptance(output, siblings))
        accepted[level] += hit

    assert set(expected) >= {0, 1, 2}
    for level in range(3):
        chances = expected[level]
        spread = math.sqrt(sum(chance * (1 - chance) for chance in chances))
        assert len(chances) > 300
        assert abs(accepted[level] - sum(chances)) < 3.3 * spread, f"level {level}"
