"""Scheduling, pages and limits of the draft model, on a runner whose law is known."""

import logging
from typing import Any

import pytest
import torch

from draft_dialogue import GREEDY, ask, opening, replies, row
from paceline.core.drafts import DraftProposal, DraftRefusal, DrawRule
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting import drawing_session
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.verification.sampler_state import SamplerState
from toy_target import Law, ToyRunner, hashed_law

VOCAB = 13
LAW = hashed_law(VOCAB)


def _greedy(law: Law, context: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
    for _ in range(num_tokens):
        context = (*context, int(law(context).argmax()))
    return context[len(context) - num_tokens :]


def _drafter(runner: ToyRunner | None = None, *, eos: tuple[int, ...] = (), chunk: int = 256) -> DraftModelDrafter:
    return DraftModelDrafter(runner or ToyRunner(LAW, VOCAB), eos_token_ids=eos, prefill_chunk=chunk)


def _propose(
    drafter: DraftModelDrafter, tokens: HashedTokens, base: int, depth: int, session: str = "s"
) -> DraftProposal:
    reply = ask(drafter, row(tokens, base, depth=depth, session=session))
    assert isinstance(reply, DraftProposal)
    return reply


@pytest.mark.parametrize("length", range(1, 18))
@pytest.mark.parametrize("depth", range(1, 8))
def test_drafts_are_the_models_own_continuation_across_page_borders(length: int, depth: int) -> None:
    """Page size 4, every prompt length and depth: drafts equal a fresh run, and again after commits."""
    drafter = _drafter()
    drafter.open([opening(prompt_tokens=length)])
    tokens = HashedTokens(i % VOCAB for i in range(length))
    base = 0
    for committed in (depth, 0, 2):
        drafted = _propose(drafter, tokens, base, depth).tree.token_ids
        assert drafted == _greedy(LAW, tokens.slice(0), depth)
        base = len(tokens)
        tokens.extend((*drafted[:committed], 5))


def test_all_ready_sessions_are_drafted_in_the_same_passes() -> None:
    """Eight sessions at depth 3 take three passes, not twenty-four."""
    runner = ToyRunner(LAW, VOCAB)
    drafter = _drafter(runner)
    names = [f"s{i}" for i in range(8)]
    drafter.open([opening(name) for name in names])
    contexts = {name: HashedTokens([i, i + 1, 3]) for i, name in enumerate(names)}
    drafter.request([row(tokens, 0, depth=3, session=name) for name, tokens in contexts.items()])
    got = {reply.session: reply for reply in drafter.collect(0.0)}
    assert runner.num_forwards == 3
    for name, tokens in contexts.items():
        reply = got[name]
        assert isinstance(reply, DraftProposal)
        assert reply.tree.token_ids == _greedy(LAW, tokens.slice(0), 3)


def test_keys_and_values_of_committed_drafts_are_not_computed_again() -> None:
    """After three of four drafts were committed, the next round feeds the target's own token alone."""
    runner = ToyRunner(LAW, VOCAB)
    drafter = _drafter(runner)
    drafter.open([opening()])
    tokens = HashedTokens([1, 2, 3])
    drafted = _propose(drafter, tokens, 0, 4).tree.token_ids
    tokens.extend((*drafted[:3], 11))
    runner.passes.clear()
    _propose(drafter, tokens, 3, 2)
    assert runner.passes == [[(1, 1)], [(1, 1)]]


def test_a_long_context_comes_in_chunks_and_delays_nobody() -> None:
    """A session that is up to date is answered before a long prefill ends; no unit exceeds the chunk."""
    runner = ToyRunner(LAW, VOCAB)
    drafter = _drafter(runner, chunk=32)
    drafter.open([opening("long"), opening("short")])
    long = HashedTokens(i % VOCAB for i in range(200))
    drafter.request([row(long, 0, depth=2, session="long"), row(HashedTokens([1, 2]), 0, depth=2, session="short")])
    order = [[reply.session for reply in drafter.collect(0.0)] for _ in range(12)]
    answered = [name for unit in order for name in unit]
    assert answered == ["short", "long"]
    assert order[0] == ["short"]
    assert all(sum(count for count, _ in p) <= 32 for p in runner.passes)


def test_a_chunk_is_shared_by_all_that_are_behind() -> None:
    """Three long prompts: no pass exceeds the chunk, and every context token is computed exactly once."""
    runner = ToyRunner(LAW, VOCAB)
    drafter = _drafter(runner, chunk=32)
    lengths = {"a": 100, "b": 30, "c": 20}
    drafter.open([opening(name) for name in lengths])
    text = [i % VOCAB for i in range(100)]
    drafter.request([row(HashedTokens(text[:n]), 0, depth=1, session=name) for name, n in lengths.items()])
    assert len(replies(drafter)) == 3
    sizes = [sum(count for count, _ in rows) for rows in runner.passes]
    assert max(sizes) <= 32
    assert sum(sizes) == 150


def test_a_prefill_is_not_starved_by_others() -> None:
    """Chunks take turns with drafting, so a long prompt ends even if others always have work."""
    drafter = _drafter(chunk=32)
    drafter.open([opening("long"), opening("busy")])
    drafter.request([row(HashedTokens(i % VOCAB for i in range(100)), 0, depth=1, session="long")])
    busy = HashedTokens([1])
    answered = set()
    for _ in range(12):
        drafter.request([row(busy, 0, depth=1, session="busy")])
        answered |= {reply.session for reply in drafter.collect(0.0)}
    assert answered == {"long", "busy"}


def test_drafting_stops_at_the_end_of_sequence() -> None:
    """No draft follows an end token, unless the request ignores it; stop ids always end."""
    tokens = HashedTokens([4, 4, 4])
    free = _greedy(LAW, tokens.slice(0), 6)
    end = free[2]
    first = free.index(end)
    for sampling, expected in (
        (GREEDY, first + 1),
        (SamplingParams(temperature=0.0, ignore_eos=True), 6),
        (SamplingParams(temperature=0.0, ignore_eos=True, stop_token_ids=(end,)), first + 1),
    ):
        drafter = _drafter(eos=(end,))
        drafter.open([opening(sampling=sampling, prompt_tokens=3)])
        assert _propose(drafter, tokens, 0, 6).tree.token_ids == free[:expected]


def test_laws_are_sent_only_where_they_were_drawn_from() -> None:
    """An independent draw at temperature 1 comes with one law per draft, each holding its id."""
    for rule, temperature, has_laws in (
        (DrawRule.INDEPENDENT, 1.0, True),
        (DrawRule.INDEPENDENT, 0.0, False),
        (DrawRule.COUPLED, 1.0, False),
    ):
        drafter = DraftModelDrafter(ToyRunner(LAW, VOCAB), eos_token_ids=(), max_law_tokens=5)
        drafter.open([opening(sampling=SamplingParams(temperature=temperature), rule=rule)])
        proposal = _propose(drafter, HashedTokens([1, 2]), 0, 4)
        assert len(proposal.laws) == (4 if has_laws else 0)
        for token_id, law in zip(proposal.tree.token_ids, proposal.laws, strict=False):
            assert token_id in law.token_ids
            assert len(law.token_ids) == 5
            assert sum(law.probabilities) == pytest.approx(1.0, abs=1e-6)


def test_penalties_count_the_drafts_own_ancestors() -> None:
    """With a strong presence penalty no draft repeats a token of output or of its own chain."""
    drafter = _drafter()
    sampling = SamplingParams(temperature=0.0, presence_penalty=1000.0)
    drafter.open([opening(sampling=sampling, prompt_tokens=2)])
    drafted = _propose(drafter, HashedTokens([1, 2, 7]), 0, 8).tree.token_ids
    assert len({7, *drafted}) == 9
    again = _propose(drafter, HashedTokens([1, 2, 7]), 3, 8).tree.token_ids
    assert again == drafted


def test_rolled_back_output_no_longer_counts_for_penalties() -> None:
    """A session that was ahead draws as one that never saw the tokens it lost."""
    sampling = SamplingParams(temperature=0.0, presence_penalty=1000.0)
    ahead, fresh = _drafter(), _drafter()
    for drafter in (ahead, fresh):
        drafter.open([opening(sampling=sampling, prompt_tokens=2)])
    _propose(ahead, HashedTokens([1, 2, 3, 4, 5, 6]), 0, 3)
    kept = HashedTokens([1, 2, 3])
    assert _propose(ahead, kept, 3, 8).tree == _propose(fresh, kept, 0, 8).tree


def test_the_state_of_the_draws_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that only add tokens go on from the state they have: their cost does not grow with the text."""
    built = []

    def counted(*args: Any, **options: Any) -> SamplerState:
        built.append(options)
        return SamplerState(*args, **options)

    monkeypatch.setattr(drawing_session, "SamplerState", counted)
    drafter = _drafter()
    drafter.open([opening(prompt_tokens=2)])
    tokens = HashedTokens([1, 2])
    for _ in range(5):
        base = len(tokens)
        _propose(drafter, tokens, 0 if base == 2 else base - 1, 4)
        tokens.extend((3,))
    assert len(built) == 1


def test_context_limit_clamps_drafts_and_then_refuses() -> None:
    """Positions never pass the drafter's context; a session that reached it is refused for good."""
    runner = ToyRunner(LAW, VOCAB, context=64)
    drafter = _drafter(runner)
    drafter.open([opening()])
    tokens = HashedTokens(i % VOCAB for i in range(50))
    lengths = {}
    base = 0
    while len(tokens) < 64:
        lengths[len(tokens)] = len(_propose(drafter, tokens, base, 5).tree)
        base = len(tokens)
        tokens.extend((1, 2))
    assert lengths == {50: 5, 52: 5, 54: 5, 56: 5, 58: 5, 60: 4, 62: 2}
    for _ in range(2):
        assert ask(drafter, row(tokens, base, depth=5)) == DraftRefusal("s", "CONTEXT_LENGTH")
        base = len(tokens)
        tokens.extend((1, 2))
    assert runner.pool.num_held == 0


def test_idle_sessions_give_their_pages_to_others_and_recover() -> None:
    """With room for one session at a time, two that alternate are both served, each right."""
    runner = ToyRunner(LAW, VOCAB, num_pages=8, page_size=4)
    drafter = _drafter(runner)
    drafter.open([opening("a"), opening("b")])
    contexts = {"a": HashedTokens([1, 2] * 10), "b": HashedTokens([3, 4] * 10)}
    bases = {"a": 0, "b": 0}
    for _ in range(3):
        for name, tokens in contexts.items():
            proposal = _propose(drafter, tokens, bases[name], 3, session=name)
            assert proposal.tree.token_ids == _greedy(LAW, tokens.slice(0), 3)
            bases[name] = len(tokens)
            tokens.extend((5,))
            runner.pool.check_integrity()


def test_short_pages_refuse_for_a_while_and_never_for_good() -> None:
    """Of two sessions that do not fit together one is served; the other may ask again and then is."""
    drafter = _drafter(ToyRunner(LAW, VOCAB, num_pages=8, page_size=4))
    drafter.open([opening("a"), opening("b")])
    tokens = HashedTokens([1, 2] * 10)
    drafter.request([row(tokens, 0, depth=3, session=name) for name in ("a", "b")])
    by_name = {reply.session: reply for reply in replies(drafter)}
    refused = by_name["b"]
    assert isinstance(by_name["a"], DraftProposal)
    assert isinstance(refused, DraftRefusal)
    assert refused.reason == "KV_FULL"
    assert refused.retry_after_ms > 0
    assert isinstance(ask(drafter, row(tokens, len(tokens), depth=3, session="b")), DraftProposal)


def test_what_can_never_fit_is_refused_for_good() -> None:
    """A context larger than the whole cache holds no pages."""
    runner = ToyRunner(LAW, VOCAB, num_pages=4, page_size=4)
    drafter = _drafter(runner)
    drafter.open([opening()])
    assert ask(drafter, row(HashedTokens([1] * 15), 0, depth=2)) == DraftRefusal("s", "KV_FULL", 0)
    assert runner.pool.num_held == 0


def test_closing_gives_back_every_page_and_promise() -> None:
    """After all sessions are closed the whole pool can be reserved again."""
    runner = ToyRunner(LAW, VOCAB, num_pages=32, page_size=4)
    drafter = _drafter(runner, chunk=8)
    drafter.open([opening("a"), opening("b"), opening("c")])
    _propose(drafter, HashedTokens([1, 2, 3]), 0, 4, session="a")
    drafter.request([row(HashedTokens([1] * 30), 0, depth=2, session="b")])
    drafter.collect(0.0)  # in the middle of its prefill
    drafter.open([opening("a")])
    drafter.close(["a", "b", "c"])
    runner.pool.check_integrity()
    assert runner.pool.can_reserve(32)


def test_a_prompt_that_is_not_complete_gets_no_drafts() -> None:
    """Draws count output from the prompt's end, so part of a prompt is only brought up to date."""
    drafter = _drafter()
    drafter.open([opening(prompt_tokens=6)])
    tokens = HashedTokens([1, 2, 3, 4])
    assert len(_propose(drafter, tokens, 0, 3).tree) == 0
    tokens.extend((5, 6))
    assert _propose(drafter, tokens, 4, 3).tree.token_ids == _greedy(LAW, tokens.slice(0), 3)


def test_an_empty_context_gets_no_drafts() -> None:
    """There is no token whose logits could be used."""
    runner = ToyRunner(LAW, VOCAB)
    drafter = _drafter(runner)
    drafter.open([opening()])
    assert len(_propose(drafter, HashedTokens(), 0, 3).tree) == 0
    assert runner.num_forwards == 0


def test_logits_that_are_no_numbers_end_the_chain_only(caplog: pytest.LogCaptureFixture) -> None:
    """A model that fails at one place proposes what it had; the session goes on."""

    def law(prefix: tuple[int, ...]) -> torch.Tensor:
        return LAW(prefix) if len(prefix) != 5 else torch.full((VOCAB,), float("nan"))

    drafter = _drafter(ToyRunner(law, VOCAB))
    drafter.open([opening()])
    tokens = HashedTokens([1, 2, 3])
    with caplog.at_level(logging.WARNING):
        assert len(_propose(drafter, tokens, 0, 6).tree) == 2
    assert "drafting stopped" in caplog.text
    tokens.extend((4, 5, 6))
    assert _propose(drafter, tokens, 3, 3).tree.token_ids == _greedy(LAW, tokens.slice(0), 3)


def test_a_pass_that_raises_leaves_sessions_whole() -> None:
    """After a failed pass the same request works, with the draws that it would have had."""
    runner = ToyRunner(LAW, VOCAB)
    drafter = _drafter(runner)
    sampling = SamplingParams(temperature=0.0, presence_penalty=1000.0)
    drafter.open([opening(sampling=sampling, prompt_tokens=2)])
    tokens = HashedTokens([1, 2])
    expected = _propose(drafter, tokens, 0, 5).tree.token_ids
    forward, calls = runner.forward, iter(range(10))

    def failing(rows: object) -> torch.Tensor:
        if next(calls) == 2:
            raise RuntimeError("out of memory")
        return forward(rows)  # type: ignore[arg-type]

    runner.forward = failing  # type: ignore[method-assign]
    drafter.request([row(tokens, 2, depth=5)])
    with pytest.raises(RuntimeError, match="out of memory"):
        drafter.collect(0.0)
    assert _propose(drafter, tokens, 2, 5).tree.token_ids == expected
