"""One choice of one request while it decodes."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from paceline.core.generation import ChoiceStats, FinishReason, GenerationRequest
from paceline.core.hashed_tokens import HashedTokens
from paceline.kvcache.page_pool import PageTable
from paceline.kvcache.prefix_tree import PrefixNode
from paceline.text.choice_text import ChoiceText
from paceline.verification.sampler_state import SamplerState

Arrival = tuple[bool, int]
"""A sequence's place among all that came. What was begun elsewhere (False) stands before what was not (True)."""


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one choice; the scheduler owns it, everything derived is a property.

    [0, num_computed)             K/V valid
    [num_computed, len(tokens))   committed, computed in a coming step
    [len(tokens), slots)          draft look-ahead of one pass; rolled back on rejection

    A sequence that is pre-empted loses its K/V and nothing else.
    """

    request: GenerationRequest
    choice: int
    tokens: HashedTokens  # prompt and committed tokens
    sampler: SamplerState
    text: ChoiceText
    max_length: int  # prompt plus output that this choice may reach
    arrival: Arrival = (True, 0)
    table: PageTable | None = None  # None while it waits for admission
    prefix: PrefixNode | None = None  # the end of what it shares through the prefix tree; locked while it runs
    published: bool = False  # whether its prompt is in the prefix tree
    num_computed: int = 0
    num_cached: int = 0  # prompt tokens whose K/V were there at the first admission
    preemptions: int = 0
    finish: FinishReason | None = None
    num_replayed: int = 0  # output tokens that earlier attempts committed
    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    switches: int = 0

    @property
    def key(self) -> str:
        """Key of the request, ``request_id/attempt``."""
        return self.request.key

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_output(self) -> int:
        """Committed output tokens."""
        return len(self.tokens) - self.num_prompt

    @property
    def tokens_left(self) -> int:
        """Output tokens that may still be committed."""
        return self.max_length - len(self.tokens)

    @property
    def num_missing(self) -> int:
        """Committed tokens whose K/V are not computed."""
        return len(self.tokens) - self.num_computed

    @property
    def decoding(self) -> bool:
        """Whether only the newest token lacks K/V, so that drafts may follow it."""
        return self.num_output > 0 and self.num_computed == len(self.tokens) - 1

    def keep_path(self, stop: int, nodes: SequenceOf[int]) -> list[tuple[int, int]]:
        """Keep K/V of ``[0, stop)`` and of the accepted draft ``nodes`` behind it; all other slots go back at once.

        Nodes behind the token that ended the answer are not kept. Returns the moves that the K/V need; see
        `PageTable.keep_path`.
        """
        kept = [stop + node for node in nodes[: len(self.tokens) - stop]]
        self.num_computed = stop + len(kept)
        return self.table.keep_path(stop, kept) if self.table is not None else []

    def stats(self, drafter: str | None) -> ChoiceStats:
        """Counts for the last chunk."""
        return ChoiceStats(
            prompt_tokens=self.num_prompt,
            completion_tokens=self.num_output,
            rounds=self.rounds,
            drafted=self.drafted,
            tested=self.tested,
            accepted=self.accepted,
            drafter=drafter,
            switches=self.switches,
            replayed=self.num_replayed,
            cached_tokens=self.num_cached,
        )
