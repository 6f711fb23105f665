"""The walk down a draft tree: rules are written for one row, the work of all rows is shared.

A rule is a generator. Where it needs the target's law at its node, or an id drawn, it yields that ask and
pauses; `verdicts_of` gathers the asks of all rows and answers them together. Rows go down in step, depth by
depth, and only nodes that are reached are ever warped and drawn.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import torch

from paceline.verification.draws import DrawAsk, Draws
from paceline.verification.law import TokenLaw
from paceline.verification.noise import NoiseKey, Purpose
from paceline.verification.rows import Verdict, VerifyRow
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_laws

ROOT = -1  # the last committed token; its children have it as parent


class LawAsk(NamedTuple):
    """The target's law is wanted at the state's position."""

    logits: torch.Tensor  # [vocab]
    state: SamplerState


Ask = LawAsk | DrawAsk


class Walk:
    """One row on its way down. The drafts on the path are pushed to the row's state; the caller undoes that."""

    def __init__(self, row: VerifyRow) -> None:
        self.row = row
        self.path: list[int] = []  # nodes from the root down
        self._round_start = row.state.position

    @property
    def node(self) -> int:
        """Where the walk is."""
        return self.path[-1] if self.path else ROOT

    def child_of(self, token_id: int) -> int | None:
        """The first child of this node with that token."""
        tree = self.row.tree
        return next((child for child in tree.children(self.node) if tree.token_ids[child] == token_id), None)

    def descend(self, child: int) -> None:
        """Go to a child of this node."""
        self.row.state.push(self.row.tree.token_ids[child])
        self.path.append(child)

    def key(self, purpose: Purpose, *, depth: int | None = None) -> NoiseKey:
        """Noise for the token after the first ``depth`` drafts of the path; after all of them without it."""
        state = self.row.state
        position = self._round_start + (len(self.path) if depth is None else depth)
        round_start = 0 if purpose is Purpose.TARGET else self._round_start
        return NoiseKey(state.seed, state.choice, position, purpose, round_start)

    def law(self) -> Generator[Ask, Any, TokenLaw]:
        """The target's law of the token after this node."""
        law: TokenLaw = yield LawAsk(self.row.logits[1 + self.node], self.row.state)
        return law

    def draw(self, law: TokenLaw, key: NoiseKey) -> Generator[Ask, Any, int]:
        """One id."""
        token_id: int = yield DrawAsk(law, key)
        return token_id

    def verdict(self, token_id: int, *, depth: int | None = None) -> Verdict:
        """Accept the first ``depth`` drafts of the path, all of them without it; ``token_id`` follows."""
        tree, path = self.row.tree, tuple(self.path[:depth])
        looked_further = bool(tree.children(path[-1] if path else ROOT))
        accepted = tuple(tree.token_ids[node] for node in path)
        return Verdict((*accepted, token_id), len(path), len(path) + looked_further, path)


Rule = Callable[[Walk, Draws], Generator[Ask, Any, Verdict]]
"""Verifies one row. Yields asks, is sent their answers, returns the verdict."""


def plain(walk: Walk, draws: Draws) -> Generator[Ask, Any, Verdict]:  # noqa: ARG001 - a `Rule`
    """No drafts: the target's own draw."""
    law = yield from walk.law()
    token_id = yield from walk.draw(law, walk.key(Purpose.TARGET))
    return Verdict((token_id,), accepted=0, tested=0)


def verdicts_of(walkers: Sequence[Generator[Ask, Any, Verdict]], draws: Draws) -> list[Verdict]:
    """Run all rules to their end, answering what they ask for together."""
    verdicts: dict[int, Verdict] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(walkers)))  # a generator starts by being sent None
    while answers:
        asks: dict[int, Ask] = {}
        for index, answer in answers.items():
            try:
                asks[index] = walkers[index].send(answer)
            except StopIteration as end:
                verdicts[index] = end.value
        answers = _answered(asks, draws)
    return [verdicts[index] for index in range(len(walkers))]


def _answered(asks: dict[int, Ask], draws: Draws) -> dict[int, Any]:
    law_asks = {index: ask for index, ask in asks.items() if isinstance(ask, LawAsk)}
    draw_asks = {index: ask for index, ask in asks.items() if isinstance(ask, DrawAsk)}
    answers: dict[int, Any] = {}
    if law_asks:
        laws = target_laws([ask.logits for ask in law_asks.values()], [ask.state for ask in law_asks.values()])
        answers.update(zip(law_asks, laws, strict=True))
    if draw_asks:
        answers.update(zip(draw_asks, draws.sample(list(draw_asks.values())), strict=True))
    return answers
