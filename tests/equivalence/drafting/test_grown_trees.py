"""A tree that grows level by level on a real model, in whichever slots its nodes come to lie."""

import random
from pathlib import Path

import pytest
import torch

from draft_dialogue import ask, opening, row
from paceline.core.drafts import DraftProposal, DraftTree, DrawRule
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.kvcache.page_pool import PageTable
from paceline.modeling import attention, loader, packed_linear
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.loader import load_model
from paceline.modeling.runner import ModelRunner
from tiny_models import VOCAB_SIZE, save_tiny_model

TREE = DraftTree((7, 8, 9, 10, 11, 12, 13, 14, 15), (-1, -1, -1, 0, 0, 2, 3, 5, 5))
CONTEXT = tuple(random.Random(4).choices(range(3, VOCAB_SIZE), k=70))
TEMPERATE = SamplingParams(temperature=1.0, ignore_eos=True)


@pytest.fixture(params=["compiled", "torch"])
def exact(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether equal bits can be asked for: with the compiled kernels, not as on a machine without a compiler."""
    if request.param == "torch":
        for module in (attention, loader, packed_linear):
            monkeypatch.setattr(module, "decoder_kernels", lambda: None)
    return bool(request.param == "compiled" and loader.decoder_kernels() is not None)


@pytest.fixture(params=["llama", "qwen2-sliding"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path, request.param)


def _runner(folder: Path, page_size: int, dtype: str = "float32") -> ModelRunner:
    return ModelRunner(load_model(folder, dtype=dtype), num_pages=512 // page_size, page_size=page_size)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_grown_tree_has_the_logits_of_one_pass(folder: Path, exact: bool, dtype: str) -> None:
    """Nodes computed in a later pass than their ancestors give what they give in one pass with them."""
    runner = _runner(folder, 4, dtype)
    whole, grown = (PageTable(runner.pool, len(CONTEXT) + len(TREE)) for _ in range(2))
    for table in (whole, grown):
        table.extend_to(len(CONTEXT) + len(TREE))
        runner.forward([ForwardRow(CONTEXT, 0, table, 0)])
    start = len(CONTEXT)
    expected = runner.forward([ForwardRow(TREE.token_ids, start, whole, len(TREE), TREE.parents)])

    levels = []
    for depth in range(1, max(TREE.depths) + 1):
        first, stop = TREE.depths.index(depth), sum(d <= depth for d in TREE.depths)
        ids = TREE.token_ids[first:stop]
        levels.append(runner.forward([ForwardRow(ids, start + first, grown, len(ids), TREE.parents[:stop])]))

    logits = torch.cat(levels)
    if exact:
        assert torch.equal(logits, expected)
    else:
        assert (logits - expected).abs().max() < (1e-4 if dtype == "float32" else 0.3)


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("rule", list(DrawRule))
def test_kept_paths_draft_like_a_fresh_session(folder: Path, page_size: int, rule: DrawRule) -> None:
    """After paths of its trees were committed, a session proposes what one does that computes the text anew."""
    rng = random.Random(page_size)
    drafter = DraftModelDrafter(_runner(folder, page_size), eos_token_ids=(2,))
    drafter.open([opening(sampling=TEMPERATE, rule=rule, prompt_tokens=20)])
    tokens, base, kept = HashedTokens(CONTEXT[:30]), 0, 0
    for _ in range(10):
        proposal = ask(drafter, row(tokens, base, depth=4, nodes=12, top_k=3))
        drafter.open([opening("fresh", sampling=TEMPERATE, rule=rule, prompt_tokens=20)])
        anew = ask(drafter, row(tokens, 0, depth=4, nodes=12, top_k=3, session="fresh"))
        assert isinstance(proposal, DraftProposal)
        assert isinstance(anew, DraftProposal)
        assert proposal.tree == anew.tree
        assert len(proposal.tree) == 12
        base, node = len(tokens), -1
        while (below := proposal.tree.children(node)) and rng.random() < 0.8:
            node = rng.choice(below)
            tokens.extend([proposal.tree.token_ids[node]])
            kept += 1
        tokens.extend([rng.randrange(3, VOCAB_SIZE)])
    assert kept > 8
