"""A drafter behind a link keeps the contract that it keeps in process: the very same tests, over gRPC."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draft_dialogue import opening, replies, row
from paceline.core.drafts import DraftProposal
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.drafter import Drafter
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.rpc.remote_drafter import RemoteDrafter
from peers import loop_thread, remote
from toy_target import ToyRunner, hashed_law

_SAME_PROCESS = Path(__file__).parents[1] / "drafting"
# In process a replaced request is never answered; over a link its answer may already be under way.
_NOT_OVER_A_LINK = {"test_a_newer_request_replaces_one_that_is_pending"}
VOCAB = 11

DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "ngram": NgramDrafter,
    "draft_model": lambda: DraftModelDrafter(ToyRunner(hashed_law(VOCAB), VOCAB), eos_token_ids=(), prefill_chunk=7),
}


def _shared_tests(file: str) -> dict[str, object]:
    spec = importlib.util.spec_from_file_location(f"{file}_in_process", _SAME_PROCESS / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        name: value
        for name, value in vars(module).items()
        if name.startswith("test_")
        and name not in _NOT_OVER_A_LINK
        and "drafter" in getattr(value, "__code__", _shared_tests.__code__).co_varnames
    }


globals().update(_shared_tests("test_drafters"))
globals().update(_shared_tests("test_draft_trees"))


@pytest.fixture(params=DRAFTERS)
def drafter(request: pytest.FixtureRequest) -> Iterator[RemoteDrafter]:
    facts = DrafterFacts(request.param, "group")
    with loop_thread() as thread, remote(thread, DRAFTERS[request.param](), facts) as link:
        assert link.method == request.param
        yield link


def test_newest_request_of_a_session_is_answered_last(drafter: RemoteDrafter) -> None:
    """The answer to the newest request comes, after at most one answer to the request that it replaced."""
    drafter.open([opening()])
    tokens = HashedTokens([1, 2, 3, 4] * 5)
    drafter.request([row(tokens, 0, depth=2)])
    base = len(tokens)
    tokens.extend([1, 2, 3])
    drafter.request([row(tokens, base, depth=2)])
    lengths = [reply.base_length for reply in replies(drafter) if isinstance(reply, DraftProposal)]
    assert lengths in ([23], [20, 23])
    assert drafter.num_pending == 0
