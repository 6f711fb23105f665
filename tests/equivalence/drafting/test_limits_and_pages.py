"""Through the engine: a draft model's limits and page borders change speed, never text."""

import pytest

from engine_harness import Harness
from paceline.drafting.draft_model import DraftModelDrafter
from toy_target import ToyRunner, blended_law, hashed_law

VOCAB = 12
TARGET = hashed_law(VOCAB)
DRAFT = blended_law(TARGET, hashed_law(VOCAB, salt=1), 0.4)  # right often, not always


def _run(
    prompt_length: int, drafter: DraftModelDrafter | None, *, depth: int, max_tokens: int, context: int
) -> Harness:
    runner = ToyRunner(TARGET, VOCAB, num_pages=128, page_size=4, context=context)
    harness = Harness(runner, {"small": drafter} if drafter else None)
    prompt = tuple(i * 5 % VOCAB for i in range(prompt_length))
    harness.submit("r", prompt, drafter="small" if drafter else None, max_draft_tokens=depth, max_tokens=max_tokens)
    harness.run()
    return harness


@pytest.mark.parametrize("prompt_length", [50, 62, 64, 70])
def test_beyond_the_drafters_context_the_answer_goes_on(prompt_length: int) -> None:
    """Drafter limit 64, target limit 128: ids equal plain to the last position, drafts only below 64."""
    small = ToyRunner(DRAFT, VOCAB, num_pages=64, page_size=4, context=64)
    drafter = DraftModelDrafter(small, eos_token_ids=())
    options = {"depth": 5, "max_tokens": 128 - prompt_length, "context": 128}
    speculative = _run(prompt_length, drafter, **options)
    assert speculative.ids("r") == _run(prompt_length, None, **options).ids("r")
    assert len(speculative.ids("r")) == 128 - prompt_length
    stats = speculative.last("r").stats
    assert stats is not None
    assert (stats.drafted > 0) == (prompt_length < 63)
    assert small.pool.num_held == 0


@pytest.mark.parametrize("depth", range(1, 8))
def test_drafts_across_page_borders_are_kept_and_rejected_cleanly(depth: int) -> None:
    """Page size 4, every prompt length 1 to 16: ids equal plain, with accepted and rejected drafts."""
    tested = accepted = 0
    for prompt_length in range(1, 17):
        small = ToyRunner(DRAFT, VOCAB, num_pages=64, page_size=4)
        drafter = DraftModelDrafter(small, eos_token_ids=(), prefill_chunk=5)
        options = {"depth": depth, "max_tokens": 20, "context": 128}
        speculative = _run(prompt_length, drafter, **options)
        assert speculative.ids("r") == _run(prompt_length, None, **options).ids("r")
        stats = speculative.last("r").stats
        assert stats is not None
        tested += stats.tested
        accepted += stats.accepted
        small.pool.check_integrity()
        assert small.pool.num_held == 0
    assert 0 < accepted < tested
