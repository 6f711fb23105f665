"""What has reached the client of one answer, over all its attempts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paceline.core.generation import ChoiceStart, ChoiceStats, FinishReason, GenerationChunk
from paceline.core.model_identity import ModelIdentity
from paceline.core.plans import Plan


@dataclass(slots=True)
class _Choice:
    """One choice, and the counts of the attempts that told theirs before they stopped."""

    token_ids: list[int] = field(default_factory=list)
    num_chars: int = 0
    start: int = 0  # tokens that earlier attempts had committed
    finished: bool = False
    earlier: list[ChoiceStats] = field(default_factory=list)


class AnswerProgress:
    """Collects the chunks of all attempts and says where the next one begins."""

    def __init__(self, num_choices: int) -> None:
        self._choices = [_Choice() for _ in range(num_choices)]
        self._here: tuple[ModelIdentity, Plan] | None = None  # what the running attempt's replica serves, and how
        self._num_parts = 0  # attempts that brought something
        self.identity: ModelIdentity | None = None  # what the first of them ran on; None before the first token
        self.plan: Plan | None = None  # ... and its plan
        self.advanced = False  # whether the running attempt has brought something
        self.aborted = False  # whether its replica has stopped it

    @property
    def begun(self) -> bool:
        """Whether anything has reached the client."""
        return self._num_parts > 0

    @property
    def fingerprint(self) -> str | None:
        """System fingerprint of whatever the answer may go on on; None before it has begun."""
        return self.identity.system_fingerprint if self.identity else None

    @property
    def finished(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.finished for choice in self._choices)

    def starts(self) -> tuple[ChoiceStart, ...]:
        """Where the choices that have not ended go on; empty before anything has reached the client."""
        if not self.begun:
            return ()
        return tuple(
            ChoiceStart(index, tuple(choice.token_ids), choice.num_chars)
            for index, choice in enumerate(self._choices)
            if not choice.finished
        )

    def begin(self) -> None:
        """A further attempt goes on from here."""
        self._here = None
        self.advanced = self.aborted = False
        for choice in self._choices:
            choice.start = len(choice.token_ids)

    def runs_on(self, identity: ModelIdentity, plan: Plan) -> None:
        """The attempt has found a replica."""
        self._here = identity, plan

    def admit(self, batch: Sequence[GenerationChunk]) -> list[GenerationChunk]:
        """Note what has arrived and return what the client gets of it.

        That a replica has aborted a choice is not for the client. Counts of a choice that ends are those of
        all attempts.
        """
        return [fresh for chunk in batch if (fresh := self._admit(chunk)) is not None]

    def _admit(self, chunk: GenerationChunk) -> GenerationChunk | None:
        choice = self._choices[chunk.choice]
        choice.token_ids.extend(chunk.token_ids)
        choice.num_chars += len(chunk.text)
        stats, finish = chunk.stats, chunk.finish
        if finish is FinishReason.ABORT:
            self.aborted, finish = True, None
        choice.finished = finish is not None
        if chunk.token_ids or choice.finished:
            self._note_advance()
        if stats is not None:
            choice.earlier.append(replace(stats, completion_tokens=len(choice.token_ids), replayed=choice.start))
            stats = _sum(choice.earlier, resumed=self._num_parts - 1) if choice.finished else None
        if not chunk.token_ids and not chunk.text and not choice.finished:
            return None
        return replace(chunk, finish=finish, stats=stats)

    def _note_advance(self) -> None:
        if not self.advanced:
            self.advanced = True
            self._num_parts += 1
            if self.identity is None and self._here is not None:
                self.identity, self.plan = self._here


def _sum(parts: Sequence[ChoiceStats], *, resumed: int) -> ChoiceStats:
    """Counts of a choice over the attempts that told theirs.

    Tokens whose attempt did not count as replayed, so that tau is that of the rounds that are known. What the prefix
    cache saved is known from an attempt that began with the prompt.
    """
    last = parts[-1]
    in_rounds = sum(part.completion_tokens - part.replayed for part in parts)
    first = [part for part in parts if part.replayed == 0]
    return replace(
        last,
        rounds=sum(part.rounds for part in parts),
        drafted=sum(part.drafted for part in parts),
        tested=sum(part.tested for part in parts),
        accepted=sum(part.accepted for part in parts),
        switches=sum(part.switches for part in parts),
        drafter=next((part.drafter for part in reversed(parts) if part.drafter), None),
        resumed=resumed,
        replayed=last.completion_tokens - in_rounds,
        cached_tokens=first[-1].cached_tokens if first else 0,
    )
