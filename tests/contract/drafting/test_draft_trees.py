"""What every drafter owes its user where a budget asks for trees."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from draft_dialogue import GREEDY, ask, opening, replies, row
from head_drafters import head_drafter
from paceline.core.drafts import DraftBudget, DraftProposal, DraftTree, DrawRule
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.cascade import CascadeDrafter
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.drafter import Drafter
from paceline.drafting.ngram import NgramDrafter
from paceline.rpc.draft_checks import fault_of
from tiny_models import VOCAB_SIZE
from toy_target import ToyRunner, hashed_law

VOCAB = 11
TEXT = tuple(random.Random(5).choices((1, 2, 3), k=60))
KINDS = {
    "greedy": (GREEDY, DrawRule.COUPLED),
    "coupled": (SamplingParams(temperature=1.0), DrawRule.COUPLED),
    "drawn": (SamplingParams(temperature=1.0, top_p=0.95), DrawRule.INDEPENDENT),
}
BUDGETS = [(1, 3, 3), (3, 3, 2), (2, 6, 2), (4, 9, 3), (3, 14, 2), (5, 16, 4)]
DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "ngram": lambda: NgramDrafter(min_match=1),
    "draft_model": lambda: DraftModelDrafter(ToyRunner(hashed_law(VOCAB), VOCAB), eos_token_ids=(), prefill_chunk=16),
    "draft_model in pages of one": lambda: DraftModelDrafter(
        ToyRunner(hashed_law(VOCAB), VOCAB, page_size=1, num_pages=2048), eos_token_ids=(), prefill_chunk=16
    ),
    "cascade": lambda: CascadeDrafter(
        ToyRunner(hashed_law(VOCAB), VOCAB), NgramDrafter(min_match=1), eos_token_ids=(), prefill_chunk=16
    ),
    **{
        f"{kind} {place}": partial(head_drafter, kind, place)
        for kind in ("eagle", "mtp", "mtp-parallel", "medusa", "medusa-reduced")
        for place in ("in process", "remote")
    },
}


def _vocabulary(drafter: Drafter) -> int:
    return VOCAB_SIZE if drafter.method in {"eagle", "mtp", "medusa"} else VOCAB


@pytest.fixture(params=DRAFTERS)
def drafter(request: pytest.FixtureRequest) -> Drafter:
    return DRAFTERS[request.param]()


def _open(drafter: Drafter, kind: str, session: str = "s") -> None:
    sampling, rule = KINDS[kind]
    drafter.open([opening(session, sampling=sampling, rule=rule, prompt_tokens=20)])


def _tree_proposal(
    drafter: Drafter, tokens: HashedTokens, base: int, budget: tuple[int, int, int] = (4, 9, 3)
) -> DraftProposal:
    depth, nodes, top_k = budget
    reply = ask(drafter, row(tokens, base, depth=depth, nodes=nodes, top_k=top_k))
    assert isinstance(reply, DraftProposal)
    assert (reply.base_length, reply.base_hash) == (len(tokens), tokens.hash_at(len(tokens)))
    return reply


def _some_path(tree: DraftTree, rng: random.Random) -> list[int]:
    """Ids from the root down to some node, or none."""
    node, ids = -1, []
    while (below := tree.children(node)) and rng.random() < 0.8:
        node = rng.choice(below)
        ids.append(tree.token_ids[node])
    return ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_tree_passes_the_checks_of_the_link(drafter: Drafter, kind: str, budget: tuple[int, int, int]) -> None:
    """Breadth first; nodes, depth and children within the budget; distinct siblings with one law each set."""
    _open(drafter, kind)
    widths = set()
    for length in (40, 45, 50):
        proposal = _tree_proposal(drafter, HashedTokens(TEXT[:length]), 0, budget)
        assert len(proposal.tree) > 0
        assert fault_of(proposal, budget=DraftBudget(*budget), vocabulary_size=_vocabulary(drafter)) is None
        widths.add(len(proposal.tree.children(-1)))
    depth, nodes, _ = budget
    assert max(widths) > 1 or nodes <= depth


@pytest.mark.parametrize("kind", KINDS)
def test_one_child_a_node_is_a_chain_of_the_depth(drafter: Drafter, kind: str) -> None:
    """top_k 1 gives the same chain however many nodes are allowed."""
    _open(drafter, kind)
    tokens = HashedTokens(TEXT[:40])
    chain = _tree_proposal(drafter, tokens, 0, (4, 4, 1))
    assert chain.tree.is_chain
    assert _tree_proposal(drafter, tokens, 40, (4, 9, 1)).tree == chain.tree


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_drafted_before_leaves_no_trace(drafter: Drafter, kind: str) -> None:
    """After any paths of its trees were committed, a session drafts as one that sees the text for the first time."""
    rng = random.Random(3)
    tokens, base = HashedTokens(TEXT[:30]), 0
    _open(drafter, kind)
    for turn in range(12):
        proposal = _tree_proposal(drafter, tokens, base)
        _open(drafter, kind, fresh := f"fresh {turn}")
        drafter.request([row(tokens, 0, depth=4, nodes=9, top_k=3, session=fresh)])
        (first_time,) = replies(drafter)
        assert isinstance(first_time, DraftProposal)
        assert (proposal.tree, proposal.laws) == (first_time.tree, first_time.laws)
        base = len(tokens)
        tokens.extend([*_some_path(proposal.tree, rng), rng.randrange(1, 4)])


def test_sessions_drafted_together_get_their_own_trees(drafter: Drafter) -> None:
    """Company changes no tree: greedy and drawn ones, wide and narrow, long and short contexts side by side."""
    asked = {
        kind: row(HashedTokens(TEXT[:length]), 0, depth=depth, nodes=9, top_k=top_k, session=kind)
        for kind, length, depth, top_k in (("greedy", 25, 4, 3), ("coupled", 31, 2, 2), ("drawn", 22, 5, 1))
    }
    alone = {}
    for kind, request in asked.items():
        _open(drafter, kind, kind)
        alone[kind] = ask(drafter, request)
    for kind in asked:
        _open(drafter, kind, kind)
    drafter.request(list(asked.values()))
    for reply in replies(drafter):
        before = alone[reply.session]
        assert isinstance(reply, DraftProposal)
        assert isinstance(before, DraftProposal)
        assert (reply.tree, reply.laws) == (before.tree, before.laws)
