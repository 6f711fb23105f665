"""What clients ask and what they get back, the same over REST and gRPC."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str  # "system", "user" or "assistant"
    content: str


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A conversation to continue. None leaves a choice to the server."""

    turns: tuple[Turn, ...]
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    speculation: str = "auto"  # "auto", "on" or "off"
    drafter: str | None = None
    max_draft_tokens: int | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token; gRPC sends ids only, so there is no text then."""

    token_id: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ShownRound:
    """One round: drafts, how many were accepted, and the token that the target added.

    ``path`` has the places of the accepted drafts of a tree; empty: they are the first ones. ``parents`` are
    those of the tree; empty: a chain.
    """

    drafted: tuple[ShownToken, ...]
    accepted: int
    target_token: ShownToken | None  # None where a draft ended the answer
    wait_ms: float
    draft_ms: float
    verify_ms: float
    path: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Part of an answer. ``num_tokens`` is None where the server does not say how many tokens came with it."""

    text: str
    rounds: tuple[ShownRound, ...] = ()
    num_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """The end of an answer."""

    model: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    accepted_tokens: int
    rejected_tokens: int
    route: str
    reason: str
    drafter: str | None
    switches: int
    tau: float | None
    alpha: float | None
    seed: int
    resumed: int
    verifier: str
    system_fingerprint: str
    cached_tokens: int = 0  # of the prompt's, those that were not computed again


AnswerEvent = TextPiece | AnswerFacts


class ChatClient(Protocol):
    """Asks a running Paceline."""

    def ask(self, question: ChatQuestion) -> Generator[AnswerEvent, None, None]:
        """Stream pieces of the answer and, last, its facts.

        Raises ServiceUnreachableError or AnswerFailedError, also in the middle of an answer. Closing the
        generator ends the generation on the server.
        """

    def close(self) -> None:
        """Close the connection."""
