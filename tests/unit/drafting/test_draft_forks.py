"""Choices of one request compute their prompt once at the draft model."""

import random

import pytest

from draft_dialogue import opening, replies, row
from paceline.core.drafts import DraftProposal, DraftReply
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.draft_model import DraftModelDrafter
from toy_target import ToyRunner, hashed_law

VOCAB = 13
PROMPT = tuple(random.Random(1).choices(range(VOCAB), k=70))
SAMPLING = SamplingParams(temperature=1.0)
CHOICES = ("a", "b", "c")


def _drafter(page_size: int = 4, num_pages: int = 128) -> tuple[DraftModelDrafter, ToyRunner]:
    runner = ToyRunner(hashed_law(VOCAB, memory=200), VOCAB, page_size=page_size, num_pages=num_pages)
    return DraftModelDrafter(runner, eos_token_ids=(), prefill_chunk=32), runner


def _open(drafter: DraftModelDrafter, names: tuple[str, ...] = CHOICES, *, fork_of: str = "a") -> None:
    drafter.open(
        [
            opening(
                name, sampling=SAMPLING, prompt_tokens=len(PROMPT), seed=i, fork_of="" if name == fork_of else fork_of
            )
            for i, name in enumerate(names)
        ]
    )


def _ask(drafter: DraftModelDrafter, contexts: dict[str, HashedTokens], base: int = 0) -> dict[str, DraftReply]:
    drafter.request([row(tokens, base, depth=3, nodes=6, top_k=2, session=name) for name, tokens in contexts.items()])
    return {reply.session: reply for reply in replies(drafter)}


def _fresh(name: str, context: tuple[int, ...]) -> DraftReply:
    """What a drafter that shares nothing proposes."""
    drafter, _ = _drafter()
    _open(drafter, fork_of="")
    return _ask(drafter, {name: HashedTokens(context)})[name]


def _tree(reply: DraftReply) -> object:
    assert isinstance(reply, DraftProposal)
    return reply.tree


def _num_fed(runner: ToyRunner) -> int:
    return sum(count for rows in runner.passes for count, _ in rows)


@pytest.mark.parametrize("page_size", [1, 4])
def test_choices_that_are_opened_together_compute_one_prompt(page_size: int) -> None:
    """Three choices feed the prompt once and hold all but the rest of a page once; drafts are as without sharing."""
    alone, alone_runner = _drafter(page_size)
    _open(alone, ("a",))
    _ask(alone, {"a": HashedTokens(PROMPT)})
    forked, runner = _drafter(page_size)
    _open(forked)
    answered = _ask(forked, {name: HashedTokens(PROMPT) for name in CHOICES})
    drafted = 2 * sum(count for rows in alone_runner.passes[-2:] for count, _ in rows)
    assert _num_fed(runner) <= _num_fed(alone_runner) + drafted + 2 * page_size + 12
    assert runner.pool.num_held <= alone_runner.pool.num_held + 2 * (page_size + 6)
    for name in CHOICES:
        assert _tree(answered[name]) == _tree(_fresh(name, PROMPT))


def test_choices_part_without_touching_each_other() -> None:
    """After different texts, and after the first choice is gone, each drafts as if it had been alone."""
    drafter, runner = _drafter()
    _open(drafter)
    contexts = {name: HashedTokens(PROMPT) for name in CHOICES}
    _ask(drafter, contexts)
    rng = random.Random(2)
    for turn in range(6):
        base = len(contexts["c"])
        for tokens in contexts.values():
            tokens.extend([rng.randrange(VOCAB), rng.randrange(VOCAB)])
        for name, reply in _ask(drafter, contexts, base).items():
            assert _tree(reply) == _tree(_fresh(name, contexts[name].slice(0)))
        if turn == 2:
            drafter.close(["a"])
            del contexts["a"]
        runner.pool.check_integrity()
    drafter.close(list(contexts))
    assert runner.pool.num_held == runner.pool.num_reserved == 0


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_whose_prompt_changes_leaves_the_others_theirs(name: str) -> None:
    """A session that is cut back into shared pages, or set to other text, computes in pages of its own."""
    drafter, runner = _drafter(num_pages=60)
    _open(drafter)
    _ask(drafter, {other: HashedTokens(PROMPT) for other in CHOICES})
    changed = (*PROMPT[:41], 12, 12, *PROMPT[:30])
    assert _tree(_ask(drafter, {name: HashedTokens(changed)})[name]) == _tree(_fresh(name, changed))
    for other in CHOICES:
        if other != name:
            reply = _ask(drafter, {other: HashedTokens(PROMPT)}, len(PROMPT))[other]
            assert _tree(reply) == _tree(_fresh(other, PROMPT))
    runner.pool.check_integrity()


def test_a_fork_of_nothing_is_a_session_like_any_other() -> None:
    """Unknown names, a session's own name, and two that name each other: all are answered."""
    drafter, _ = _drafter()
    drafter.open(
        [
            opening("x", sampling=SAMPLING, prompt_tokens=len(PROMPT), fork_of="gone"),
            opening("y", sampling=SAMPLING, prompt_tokens=len(PROMPT), fork_of="z"),
            opening("z", sampling=SAMPLING, prompt_tokens=len(PROMPT), fork_of="y"),
            opening("self", sampling=SAMPLING, prompt_tokens=len(PROMPT), fork_of="self"),
        ]
    )
    answered = _ask(drafter, {name: HashedTokens(PROMPT) for name in ("x", "y", "z", "self")})
    assert len({str(_tree(reply)) for reply in answered.values()}) == 1


def test_forks_fit_where_separate_prompts_would_not() -> None:
    """Shared pages count once: three choices are admitted into a cache for little more than one prompt."""
    drafter, _ = _drafter(num_pages=30)
    _open(drafter)
    answered = _ask(drafter, {name: HashedTokens(PROMPT) for name in CHOICES})
    assert all(isinstance(reply, DraftProposal) for reply in answered.values())
