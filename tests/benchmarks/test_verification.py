"""The walk of verification down chains and trees: it must cost by the nodes reached, not by the nodes drafted."""

import pytest
import torch

from paceline.core.drafts import DraftProposal, DraftTree
from paceline.kernels.token_noise import NoisyRow
from paceline.verification.draft_draw import wire_law
from paceline.verification.law import TokenLaw
from paceline.verification.noisy_best import best_slots, best_slots_torch
from paceline.verification.sampling import target_laws
from paceline.verification.verifier import VerifyRow, make_verifier
from step_parts import logits, states

SHAPES = {
    "chain of 4": tuple(range(-1, 3)),
    "tree of 60": (-1,) * 4 + tuple(parent for parent in range(14) for _ in range(4)),
}
DEPTHS = {"chain of 4": 4, "tree of 60": 3}
LAW_TOKENS = 64


def rows_for(shape: tuple[int, ...], num_rows: int, *, right: bool, laws: bool) -> list[VerifyRow]:
    """Rows whose first branch is what the target draws, or whose drafts are ids that it never draws."""
    samplers = states(num_rows, temperature=0.8, top_p=0.95)
    scores = logits(num_rows * (1 + len(shape)))
    verifier, rows = make_verifier("coupled"), []
    for index, state in enumerate(samplers):
        share = scores[index * (1 + len(shape)) : (index + 1) * (1 + len(shape))]
        law = wire_law(target_laws([share[0]], [state])[0], LAW_TOKENS)
        drafts = law.token_ids if laws else share[0].argsort().tolist()
        tokens: tuple[int, ...] = ()
        for node, parent in enumerate(shape):
            rank = shape[:node].count(parent)
            tokens += (drafts[rank % len(drafts)],)
        if right:
            tokens = _on_the_first_branch(verifier, state, share, shape, tokens)
        tree = DraftTree(tokens, shape)
        proposal = DraftProposal("s", state.position, 0, tree, (law,) * len(shape) if laws else ())
        rows.append(VerifyRow(state, share, proposal))
    return rows


def _on_the_first_branch(verifier, state, share, shape, tokens):
    """Replace first children by the target's own draws."""
    node, drafts = -1, list(tokens)
    with state.walk():
        while node in shape:
            child = shape.index(node)
            drafts[child] = verifier.sample([VerifyRow(state, share[1 + node][None], None)])[0].token_ids[0]
            state.push(drafts[child])
            node = child
    return tuple(drafts)


@pytest.mark.parametrize("num_rows", [1, 16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_coupled(benchmark, shape, num_rows, right):
    """One round of every row: down to the end of a branch, or no further than the root."""
    rows = rows_for(SHAPES[shape], num_rows, right=right, laws=False)
    verdicts = benchmark(make_verifier("coupled").verify, rows)

    assert [verdict.accepted for verdict in verdicts] == [DEPTHS[shape] if right else 0] * num_rows


@pytest.mark.parametrize("num_rows", [1, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_rejection(benchmark, shape, num_rows):
    """One round of every row, drafts with laws."""
    rows = rows_for(SHAPES[shape], num_rows, right=False, laws=True)

    assert len(benchmark(make_verifier("rejection").verify, rows)) == num_rows


@pytest.mark.parametrize("form", ["compiled", "readable"])
def test_draw(benchmark, form):
    """One id from a whole vocabulary."""
    row = NoisyRow(logits(1)[0], None, 12345)
    if form == "compiled":
        (found,) = benchmark(best_slots, [row])
    else:
        found = benchmark(best_slots_torch, row, count=1)

    assert [slot for slot, _ in found] == [slot for slot, _ in best_slots_torch(row, count=1)]


def test_log_total(benchmark):
    """The normaliser of a whole vocabulary, which `rejection` needs for every law it tests against."""
    scores = logits(1)[0]

    assert torch.isfinite(torch.tensor(benchmark(lambda: TokenLaw(scores).log_total)))
