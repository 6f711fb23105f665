"""How a tree of the draft model grows, on a runner whose law is known."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch

from chi_square import LEAST_P, fit_p_value
from draft_dialogue import ask, opening, row
from paceline.core.drafts import DraftProposal, DraftTree, DrawRule, SparseLaw
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.fixed_shape import fixed_shape
from paceline.verification.draft_draw import wire_law
from paceline.verification.law import TokenLaw, sparse_probabilities
from paceline.verification.noise import NoiseKey, Purpose, row_key
from toy_target import Law, ToyRunner, blended_law, hashed_law

VOCAB = 13
LAW = hashed_law(VOCAB)
TEMPERATE = SamplingParams(temperature=1.0)
GREEDY = SamplingParams(temperature=0.0)
CONTEXT = (1, 2, 3)


@dataclass(frozen=True)
class Node:
    """A node with the context of its own draw, its token left out."""

    prefix: tuple[int, ...]
    token_id: int


def _drafter(law: Law = LAW, *, eos: tuple[int, ...] = (), page_size: int = 1) -> tuple[DraftModelDrafter, ToyRunner]:
    runner = ToyRunner(law, VOCAB, page_size=page_size)
    return DraftModelDrafter(runner, eos_token_ids=eos, max_law_tokens=8), runner


def _draft(
    drafter: DraftModelDrafter,
    budget: tuple[int, int, int],
    *,
    sampling: SamplingParams = TEMPERATE,
    rule: DrawRule = DrawRule.COUPLED,
    seed: int = 7,
    context: tuple[int, ...] = CONTEXT,
) -> DraftProposal:
    """The proposal of a new session."""
    drafter.open([opening(sampling=sampling, rule=rule, prompt_tokens=len(CONTEXT), seed=seed)])
    depth, nodes, top_k = budget
    reply = ask(drafter, row(HashedTokens(context), 0, depth=depth, nodes=nodes, top_k=top_k))
    assert isinstance(reply, DraftProposal)
    return reply


def _nodes(tree: DraftTree, context: tuple[int, ...] = CONTEXT) -> list[Node]:
    nodes: list[Node] = []
    for token_id, parent in zip(tree.token_ids, tree.parents, strict=True):
        above = nodes[parent] if parent >= 0 else None
        nodes.append(Node((*above.prefix, above.token_id) if above else context, token_id))
    return nodes


def _target_draw(prefix: tuple[int, ...], seed: int, law: Law = LAW) -> int:
    """What a target with ``law`` draws itself behind ``prefix``."""
    return TokenLaw(law(prefix)).draw(row_key(NoiseKey(seed, 0, len(prefix), Purpose.TARGET)))


def _accepted(tree: DraftTree, seed: int, law: Law) -> int:
    """Drafts of a tree that the target accepts."""
    node, prefix, accepted = -1, CONTEXT, 0
    while True:
        token_id = _target_draw(prefix, seed, law)
        below = [child for child in tree.children(node) if tree.token_ids[child] == token_id]
        if not below:
            return accepted
        node, prefix, accepted = below[0], (*prefix, token_id), accepted + 1


@pytest.mark.parametrize("page_size", [1, 4])
def test_each_node_is_an_alternative_of_its_own_path(page_size: int) -> None:
    """Greedy: the children of any node are its best tokens by the law behind that very path."""
    drafter, _ = _drafter(page_size=page_size)
    tree = _draft(drafter, (4, 14, 3), sampling=GREEDY).tree
    assert len(tree) == 14
    assert max(tree.depths) > 1
    for node in range(-1, len(tree)):
        children = tree.children(node)
        if children:
            law = LAW(_nodes(tree)[children[0]].prefix)
            best = torch.sort(law, descending=True, stable=True).indices[: len(children)]
            assert [tree.token_ids[child] for child in children] == best.tolist()


def test_a_coupled_drafter_with_the_targets_law_is_always_right() -> None:
    """The target's own draw is the first child of every node that has children; chains are accepted whole."""
    drafter, _ = _drafter()
    num_inner = 0
    for seed in range(30):
        tree = _draft(drafter, (4, 10, 3), seed=seed).tree
        for node in range(-1, len(tree)):
            for child in tree.children(node)[:1]:
                place = _nodes(tree)[child]
                assert place.token_id == _target_draw(place.prefix, seed)
                num_inner += 1
        assert _accepted(_draft(drafter, (4, 10, 1), seed=seed).tree, seed, LAW) == 4
    assert num_inner > 100


def test_ranking_by_the_gap_beats_ranking_by_probability() -> None:
    """With a drafter that is near to the target, trees by perturbed scores get more accepted than trees by log q."""
    drafter, _ = _drafter(blended_law(LAW, hashed_law(VOCAB, salt=9), 0.4))
    seeds = range(150)
    by_gap = sum(_accepted(_draft(drafter, (3, 6, 3), seed=seed).tree, seed, LAW) for seed in seeds)
    chains = sum(_accepted(_draft(drafter, (3, 6, 1), seed=seed).tree, seed, LAW) for seed in seeds)
    likeliest = partial(_draft, sampling=GREEDY)
    by_law = sum(_accepted(likeliest(drafter, (3, 6, 3), seed=seed).tree, seed, LAW) for seed in seeds)
    assert by_gap > 1.15 * chains
    assert by_gap > 1.5 * by_law


def test_drawn_trees_have_the_same_shape_whatever_was_drawn() -> None:
    """Under INDEPENDENT the parents depend on the budget alone, and no end token cuts a branch."""
    drafter, _ = _drafter(eos=tuple(range(5)))
    for budget in ((3, 7, 2), (4, 12, 3), (2, 5, 4)):
        shapes = {_draft(drafter, budget, rule=DrawRule.INDEPENDENT, seed=seed).tree.parents for seed in range(40)}
        assert len(shapes) == 1
        assert len(shapes.pop()) == sum(fixed_shape(*budget).values())


def test_siblings_carry_the_law_that_they_were_drawn_from() -> None:
    """Each law is that of its node's own prefix, at the precision that travels; siblings carry the same one."""
    drafter, _ = _drafter()
    for seed in range(10):
        proposal = _draft(drafter, (3, 9, 3), rule=DrawRule.INDEPENDENT, seed=seed)
        assert len(proposal.laws) == len(proposal.tree) == 9
        for node, law in zip(_nodes(proposal.tree), proposal.laws, strict=True):
            assert law == wire_law(TokenLaw(LAW(node.prefix)), 8)
            assert node.token_id in law.token_ids


def test_no_laws_travel_where_drafts_were_chosen() -> None:
    """Coupled and greedy trees count as one-hot."""
    drafter, _ = _drafter()
    for sampling, rule in ((TEMPERATE, DrawRule.COUPLED), (GREEDY, DrawRule.INDEPENDENT), (GREEDY, DrawRule.COUPLED)):
        assert _draft(drafter, (3, 9, 3), sampling=sampling, rule=rule).laws == ()


def test_no_chosen_draft_follows_an_end_token() -> None:
    """A branch ends where the answer would; the others go on."""
    free, _ = _drafter()
    tree = _draft(free, (3, 10, 3), sampling=GREEDY).tree
    end = tree.token_ids[0]
    stopping, _ = _drafter(eos=(end,))
    ended = _draft(stopping, (3, 10, 3), sampling=GREEDY).tree
    assert ended.token_ids[0] == end
    assert all(ended.token_ids[parent] != end for parent in ended.parents if parent >= 0)
    assert max(ended.depths) > 1


def test_penalties_count_a_nodes_own_ancestors_only() -> None:
    """With a strong presence penalty no path repeats a token, while branches may."""
    drafter, _ = _drafter()
    sampling = SamplingParams(temperature=0.0, presence_penalty=1000.0)
    tree = _draft(drafter, (4, 20, 3), sampling=sampling).tree
    for node in _nodes(tree):
        assert node.token_id not in node.prefix[len(CONTEXT) :]
    assert len(set(tree.token_ids)) < len(tree)


def test_a_level_takes_one_pass_and_a_node_one_slot() -> None:
    """Depth 3 with 9 nodes: three passes, never more than one slot a node beyond the context."""
    drafter, runner = _drafter()
    tree = _draft(drafter, (3, 9, 3)).tree
    widths = [tree.depths.count(depth) for depth in (1, 2, 3)]
    assert sum(widths) == 9
    assert runner.passes[0] == [(3, 1)]
    assert len(runner.passes) == 3
    assert runner.pool.num_held <= len(CONTEXT) + 9


def test_a_drawn_tree_computes_each_inner_node_once() -> None:
    """Nothing is pruned, so each pass feeds one level and the last level is never fed."""
    drafter, runner = _drafter()
    tree = _draft(drafter, (3, 12, 3), rule=DrawRule.INDEPENDENT).tree
    widths = [tree.depths.count(depth) for depth in (1, 2)]
    assert runner.passes == [[(3, 1)], [(widths[0],) * 2], [(widths[1],) * 2]]


@pytest.mark.parametrize(("page_size", "moves"), [(1, False), (4, True)])
def test_a_committed_path_is_not_computed_again(page_size: int, moves: bool) -> None:
    """Whatever path was accepted, the next round feeds only what had no K/V; pages of one token move nothing."""
    drafter, runner = _drafter(page_size=page_size)
    first = _draft(drafter, (3, 9, 3), sampling=GREEDY).tree
    path = [first.children(-1)[-1]]
    path += [node for node in first.children(path[0])[-1:] if first.depths[node] < 3]
    drafted = [first.token_ids[node] for node in path]
    runner.passes.clear()
    tokens = HashedTokens((*CONTEXT, *drafted, 5))
    reply = ask(drafter, row(tokens, len(CONTEXT), depth=2, nodes=4, top_k=2))
    assert isinstance(reply, DraftProposal)
    assert runner.passes[0] == [(1, 1)]
    assert (runner.num_moved > 0) == moves
    again, _ = _drafter()
    assert reply.tree == _draft(again, (2, 4, 2), sampling=GREEDY, context=(*CONTEXT, *drafted, 5)).tree


def test_rejected_nodes_give_back_their_slots() -> None:
    """After a round without a hit the session holds its context and no more."""
    drafter, runner = _drafter()
    tree = _draft(drafter, (3, 9, 3), sampling=GREEDY).tree
    other = next(i for i in range(VOCAB) if i not in {tree.token_ids[child] for child in tree.children(-1)})
    tokens = HashedTokens((*CONTEXT, other))
    drafter.request([row(tokens, len(CONTEXT), depth=0)])
    drafter.collect(0.0)
    assert runner.pool.num_held == len(tokens)
    runner.pool.check_integrity()


def test_logits_that_are_no_numbers_end_their_branch_only() -> None:
    """Where the model fails behind one token, the other branches go on."""
    bad = int(LAW(CONTEXT).argmax())

    def law(prefix: tuple[int, ...]) -> Any:
        return torch.full((VOCAB,), float("nan")) if prefix[-1] == bad else LAW(prefix)

    drafter, _ = _drafter(law)
    tree = _draft(drafter, (3, 10, 3), sampling=GREEDY).tree
    assert tree.token_ids[0] == bad
    assert not tree.children(0)
    assert max(tree.depths) == 3


def test_siblings_at_every_level_are_draws_from_their_laws() -> None:
    """Over many seeds, pairs below the root and pairs below one first draft follow q without replacement."""
    drafter, _ = _drafter(hashed_law(5, scale=0.8))
    below_root: Counter[tuple[int, ...]] = Counter()
    below_first: defaultdict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
    laws: dict[int, SparseLaw] = {}
    for seed in range(1200):
        proposal = _draft(drafter, (2, 6, 2), rule=DrawRule.INDEPENDENT, seed=seed)
        ids = proposal.tree.token_ids
        first, *_ = proposal.tree.children(-1)
        below_root[tuple(ids[child] for child in proposal.tree.children(-1))] += 1
        below_first[ids[first]][tuple(ids[child] for child in proposal.tree.children(first))] += 1
        laws[-1], laws[ids[first]] = proposal.laws[first], proposal.laws[proposal.tree.children(first)[0]]
    commonest = max(below_first, key=lambda token_id: below_first[token_id].total())
    assert below_first[commonest].total() > 250
    assert fit_p_value(below_root, _pair_law(laws[-1])) > LEAST_P
    assert fit_p_value(below_first[commonest], _pair_law(laws[commonest])) > LEAST_P


def _pair_law(law: SparseLaw) -> dict[tuple[int, int], float]:
    """Ordered pairs drawn without replacement."""
    ids, chances = sparse_probabilities(law)
    q = dict(zip(ids.tolist(), chances.tolist(), strict=True))
    return {(a, b): q[a] * q[b] / (1 - q[a]) for a in q for b in q if a != b}
