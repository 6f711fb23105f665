"""K/V after any number of chain and tree rounds are those of a fresh prefill of the committed tokens."""

import random

import pytest
import torch

from drafters import CoinDrafter
from engine_harness import Harness
from paceline.kernels.compiled import load_kernel
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.loader import load_model
from paceline.modeling.resolve import resolve_model
from paceline.modeling.runner import ModelRunner
from roulette import RouletteDrafter
from tiny_models import save_tiny_model
from tree_scripts import TreeScriptDrafter, continuing, hidden_truth

# Without a compiler the fallback sums a tree row's keys in another order.
TOLERANCE = 0.0 if load_kernel("decoder_layers") is not None else 2e-2
PROMPTS = ((5, 6, 7, 8, 5, 6), tuple(range(20, 60)), (9,))
LETTERS = 26  # the tokenizer of the harness shows no others; texts play no part here


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


class Twin:
    """Computes texts afresh, on the same weights."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = ModelRunner(runner.loaded, num_pages=512, page_size=1)

    def assert_equal(self, runner: ModelRunner, table: PageTable, token_ids: tuple[int, ...]) -> None:
        """Raise AssertionError unless ``table``'s K/V in ``runner`` are those of a prefill of ``token_ids``."""
        fresh = PageTable(self._runner.pool, len(token_ids))
        fresh.extend_to(len(token_ids))
        self._runner.forward([ForwardRow(token_ids, 0, fresh, 0)])
        for layer in range(runner.loaded.num_layers):
            kept = runner.store.read(layer, torch.tensor([table.slots(0, len(token_ids))]))
            wanted = self._runner.store.read(layer, torch.tensor([fresh.slots(0, len(token_ids))]))
            for one, other in zip(kept, wanted, strict=True):
                off = float((one.float() - other.float()).abs().max())
                assert off <= TOLERANCE, f"layer {layer}: off by {off:.3g}"
        fresh.free()


def rounds(runner: ModelRunner, prompts, references, *, seed: int, max_tokens: int, compare_every: int) -> Harness:
    """Chains and trees, some right and some wrong, for all prompts together; K/V are compared as they grow."""
    rng = random.Random(seed)
    whole = [prompt + reference for prompt, reference in zip(prompts, references, strict=True)]
    vocab = runner.vocab_size
    drafter = RouletteDrafter(
        {
            "chains": CoinDrafter(whole, vocab_size=vocab, share=0.7, seed=seed),
            "trees": TreeScriptDrafter(hidden_truth(continuing(whole), vocab, rng)),
        },
        rng,
    )
    harness = Harness(runner, {"any": drafter}, step_tokens=16, top_k=3)
    runner.pool.on_free = runner.poison
    twin, steps = Twin(runner), 0
    for index, prompt in enumerate(prompts):
        harness.submit(f"r{index}/1", prompt, drafter="any", max_draft_tokens=8, seed=index, max_tokens=max_tokens)
    while harness.engine.has_work:
        harness.engine.step()
        steps += 1
        for sequence in harness.scheduler.running if steps % compare_every == 0 else ():
            twin.assert_equal(runner, sequence.table, sequence.tokens.slice(0, sequence.num_computed))
    assert drafter.rounds["trees"] > 5
    assert sum(harness.last(f"r{index}/1").stats.accepted for index in range(len(prompts))) > 5
    assert [harness.ids(f"r{index}/1") for index in range(len(prompts))] == references
    return harness


def plain(runner: ModelRunner, prompts, *, max_tokens: int):
    """Answers without drafts, one at a time."""
    answers = []
    for index, prompt in enumerate(prompts):
        harness = Harness(runner, prefix_cache=False)
        harness.submit("r/1", prompt, seed=index, max_tokens=max_tokens)
        harness.run()
        answers.append(harness.ids("r/1"))
    return answers


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_rounds_leave_what_a_prefill_would_write(tiny, page_size, dtype):
    """Bit for bit, with pages poisoned once they are free; one-token pages copy no K/V byte to get there."""
    runner = ModelRunner(load_model(tiny, dtype=dtype, device="cpu"), num_pages=1024 // page_size, page_size=page_size)
    references = plain(runner, PROMPTS, max_tokens=40)
    rounds(runner, PROMPTS, references, seed=page_size, max_tokens=40, compare_every=3)

    assert (runner.store.num_moved == 0) == (page_size == 1)


@pytest.mark.model
def test_rounds_of_the_demo_model_leave_what_a_prefill_would_write():
    """The same on a real model in bfloat16."""
    loaded = load_model(resolve_model("smollm2-135m"), dtype="bfloat16", device="cpu")
    runner = ModelRunner(loaded, num_pages=1024, page_size=1)
    prompts = (tuple(range(1000, 1030)), (504, 905, 28))
    references = plain(runner, prompts, max_tokens=24)
    rounds(runner, prompts, references, seed=1, max_tokens=24, compare_every=6)

    assert runner.store.num_moved == 0
