"""A drafter that is the target itself must always be right: any wrong draft is stale or misplaced K/V."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draft_dialogue import ask, opening, row
from engine_harness import Harness
from paceline.core.drafts import DraftProposal
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.engine.speculation import SpeculationSettings
from paceline.modeling.loader import LoadedModel, load_model
from paceline.modeling.runner import ModelRunner
from tiny_models import VOCAB_SIZE, save_tiny_model
from toy_target import ToyRunner

PROMPT = (1, 17, 33, 5, 90, 61, 8)
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True),
    "coupled": SamplingParams(temperature=1.0, top_p=0.9, presence_penalty=0.5, max_tokens=60, ignore_eos=True),
}


@dataclass(frozen=True)
class Reference:
    """A target and what it says after `PROMPT`."""

    loaded: LoadedModel
    sampling: SamplingParams
    tokens: HashedTokens  # prompt and 60 output tokens, decoded plain

    def runner(self, *, num_pages: int = 64) -> ModelRunner:
        return ModelRunner(self.loaded, num_pages=num_pages, page_size=4)

    def drafter(self, *, num_pages: int = 64) -> DraftModelDrafter:
        return DraftModelDrafter(self.runner(num_pages=num_pages), eos_token_ids=(2,), prefill_chunk=8)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = save_tiny_model(tmp_path_factory.mktemp("target"))
    return load_model(folder, dtype="float32")


def _plain_harness(loaded: LoadedModel, drafter: DraftModelDrafter | None = None) -> Harness:
    runner = cast("ToyRunner", ModelRunner(loaded, num_pages=64, page_size=4))
    return Harness(runner, {"self": drafter} if drafter else None, eos_token_ids=(2,))


def _submit(harness: Harness, sampling: SamplingParams, **options: Any) -> None:
    fields = {name: getattr(sampling, name) for name in sampling.__dataclass_fields__}
    harness.submit("r", PROMPT, seed=7, **fields, **options)


@pytest.fixture(scope="module", params=SAMPLINGS)
def reference(request: pytest.FixtureRequest, loaded: LoadedModel) -> Reference:
    sampling = SAMPLINGS[request.param]
    harness = _plain_harness(loaded)
    _submit(harness, sampling)
    harness.run()
    output = harness.ids("r")
    assert len(output) == 60
    assert all(token_id < VOCAB_SIZE for token_id in output)
    return Reference(loaded, sampling, HashedTokens((*PROMPT, *output)))


class Dialogue:
    """The target's side, committing the reference's tokens whatever is drafted."""

    def __init__(self, reference: Reference, drafter: DraftModelDrafter) -> None:
        self._all = reference.tokens
        self._drafter = drafter
        self._committed = HashedTokens(PROMPT)
        self._sent = 0
        self.tested = 0
        self.accepted = 0
        drafter.open([opening(sampling=reference.sampling, prompt_tokens=len(PROMPT), seed=7)])

    def plain(self, num_tokens: int, *, sync: bool) -> None:
        """Decode without drafts; ``sync`` keeps the drafter up to date all the while."""
        for _ in range(num_tokens):
            self._commit(1)
            if sync:
                assert len(self._ask(0).tree) == 0

    def speculate(self, depth: int) -> None:
        """One round."""
        drafted = self._ask(depth).tree.token_ids
        at = len(self._committed)
        truth = self._all.slice(at, at + depth)
        accepted = next((i for i, (d, t) in enumerate(zip(drafted, truth, strict=True)) if d != t), depth)
        self.accepted += accepted
        self.tested += min(depth, accepted + 1)
        self._commit(accepted + 1)

    def _ask(self, depth: int) -> DraftProposal:
        reply = ask(self._drafter, row(self._committed, self._sent, depth=depth))
        assert isinstance(reply, DraftProposal)
        self._sent = len(self._committed)
        return reply

    def _commit(self, num_tokens: int) -> None:
        at = len(self._committed)
        self._committed.extend(self._all.slice(at, at + num_tokens))


@pytest.mark.parametrize("sync", [True, False], ids=["kept in sync", "left behind"])
def test_a_plain_period_costs_no_acceptance(reference: Reference, sync: bool) -> None:
    """20 tokens speculative, 20 plain, 20 speculative: every draft of every round is right."""
    dialogue = Dialogue(reference, reference.drafter())
    for _ in range(4):
        dialogue.speculate(4)
    dialogue.plain(20, sync=sync)
    for _ in range(4):
        dialogue.speculate(3)
    assert (dialogue.accepted, dialogue.tested) == (28, 28)


@given(st.lists(st.one_of(st.integers(1, 6), st.just("plain"), st.just("sync"), st.just("lost")), max_size=12))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_no_order_of_rounds_makes_a_draft_wrong(reference: Reference, rounds: list[int | str]) -> None:
    """Depths, plain periods, catching up and other sessions that take the pages, in any order."""
    drafter = reference.drafter(num_pages=18)  # room for one session of this length
    dialogue = Dialogue(reference, drafter)
    for step in rounds:
        if step == "lost":
            drafter.open([opening("other")])
            ask(drafter, row(HashedTokens(range(3, 60)), 0, depth=2, session="other"))
            drafter.close(["other"])
        elif isinstance(step, str):
            dialogue.plain(2, sync=step == "sync")
        elif len(dialogue._committed) + step < len(reference.tokens):
            dialogue.speculate(step)
    assert dialogue.accepted == dialogue.tested


def test_the_engine_accepts_every_draft_across_the_kill_switch(reference: Reference) -> None:
    """Speculation off and on again in mid-answer: same ids, alpha 1, and both changes are counted."""
    harness = _plain_harness(reference.loaded, reference.drafter())
    _submit(harness, reference.sampling, drafter="self", max_draft_tokens=3)
    for step in range(10_000):
        if not harness.engine.has_work:
            break
        enabled = not 6 <= step < 20
        harness.speculation.apply(SpeculationSettings(enabled, 3, wait_share=1.0, deadline_ms=1000))
        harness.engine.step()
    harness.engine.check_integrity()
    assert harness.ids("r") == reference.tokens.slice(len(PROMPT))
    stats = harness.last("r").stats
    assert stats is not None
    assert stats.alpha == 1.0
    assert stats.tested >= 20
    assert stats.switches == 2


@pytest.mark.parametrize("num_nodes", [4, 9])
def test_trees_of_the_target_itself_never_miss(reference: Reference, num_nodes: int) -> None:
    """At every level that a tree reached, one of its drafts is the target's token; n choices share their prompt."""
    runner = cast("ToyRunner", reference.runner())
    harness = Harness(runner, {"self": reference.drafter(num_pages=128)}, eos_token_ids=(2,), top_k=3)
    _submit(harness, reference.sampling, drafter="self", max_draft_tokens=num_nodes, num_choices=2)
    harness.run()
    assert harness.ids("r") == reference.tokens.slice(len(PROMPT))
    for choice in range(2):
        stats = harness.last("r", choice).stats
        assert stats is not None
        assert stats.alpha == 1.0
        assert stats.tau is not None
        assert stats.tau > 2.0
