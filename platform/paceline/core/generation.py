"""Requests to an engine and the chunks that come back."""

from dataclasses import dataclass
from enum import Enum

from paceline.core.plans import Plan
from paceline.core.sampling_params import SamplingParams


class FinishReason(Enum):
    """Why a choice ended; ``STOP`` covers end of sequence, stop ids and stop strings."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class ChoiceStart:
    """Where a choice begins: at the prompt, or where another attempt stopped.

    ``output_token_ids`` were committed by earlier attempts and reached the client, with their logprobs.
    ``text_offset`` characters of their text reached it too; what these ids give beyond them is sent with
    the next chunk.
    """

    choice: int
    output_token_ids: tuple[int, ...] = ()
    text_offset: int = 0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request as an engine sees it: tokenised, validated, routed.

    ``key`` is ours and unique (``request_id/attempt``); the client's own id never gets here. A resumed
    request is the first attempt's with the choices that had not ended in ``resumed``: its prompt, its
    seed and its limits, which count from the prompt.
    """

    key: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int  # 64-bit; fixed before routing, so that a request can be replayed
    plan: Plan
    num_choices: int = 1
    explain: bool = False  # whether chunks carry RoundTrace records
    tenant_salt: str = ""
    traceparent: str = ""
    resumed: tuple[ChoiceStart, ...] = ()  # go on with these choices, and with no others
    deadline_s: float | None = None  # time left when the request was sent; nobody waits for what comes later

    @property
    def starts(self) -> tuple[ChoiceStart, ...]:
        """The choices to decode."""
        return self.resumed or tuple(ChoiceStart(choice) for choice in range(self.num_choices))


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-softmax of the unwarped logits at one output position."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (id, logprob), best first, ties by id


@dataclass(frozen=True, slots=True)
class RoundTrace:
    """One round of one choice, for ``--explain``.

    ``parents`` and ``path`` say how the drafts hang together, as in `DraftTree`, and which were accepted,
    from the root down; both are empty where the drafts are a chain.
    """

    drafted: tuple[int, ...]
    accepted: int
    target_token: int | None  # the token that the target added itself; None where a draft ended the answer
    wait_ms: float
    draft_ms: float
    verify_ms: float
    parents: tuple[int, ...] = ()
    path: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceStats:
    """Counts of one choice; only committed tokens count as output."""

    prompt_tokens: int
    completion_tokens: int
    rounds: int  # target passes that committed at least one token
    drafted: int  # nodes, where drafts are trees
    tested: int  # drafts (of trees: levels) that verification looked at: none after the first rejection
    accepted: int
    drafter: str | None
    switches: int  # changes between plain and speculative within the answer
    resumed: int = 0
    replayed: int = 0  # of the completion tokens, those that earlier attempts committed
    cached_tokens: int = 0  # of the prompt's tokens, those whose K/V were in the prefix cache

    @property
    def tau(self) -> float | None:
        """Tokens committed per target pass; None before the first."""
        return (self.completion_tokens - self.replayed) / self.rounds if self.rounds else None

    @property
    def alpha(self) -> float | None:
        """Accepted over tested drafts; None while nothing was tested."""
        return self.accepted / self.tested if self.tested else None


@dataclass(frozen=True, slots=True)
class GenerationChunk:
    """Committed tokens of one choice, in order. ``text`` may lag behind ``token_ids``.

    ``first_index`` counts the choice's output tokens before this chunk, ``text_offset`` its characters.
    The last chunk of a choice has ``finish`` and ``stats``.
    """

    key: str
    choice: int
    first_index: int
    token_ids: tuple[int, ...]
    text: str
    text_offset: int
    logprobs: tuple[TokenLogprob, ...] = ()
    rounds: tuple[RoundTrace, ...] = ()
    finish: FinishReason | None = None
    stats: ChoiceStats | None = None
