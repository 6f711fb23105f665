"""What one step computes."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from paceline.core.drafts import DraftProposal
from paceline.core.generation import RoundTrace, TokenLogprob
from paceline.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """Tokens ``[start, stop)`` of one sequence, and how many drafts may follow them."""

    sequence: Sequence
    start: int
    stop: int
    max_drafts: int  # 0 unless the sequence decodes

    @property
    def completes(self) -> bool:
        """Whether the row ends with the newest token, so that the next one can be drawn."""
        return self.stop == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Rows of one target pass, in the order of the flat batch."""

    rows: SequenceOf[PlannedRow]

    @property
    def num_prefill_tokens(self) -> int:
        """Tokens of prompts in this pass."""
        return sum(row.stop - row.start for row in self.rows if not row.sequence.decoding)


@dataclass(frozen=True, slots=True)
class Drafts:
    """Proposals that go into one pass, and what waiting for them cost."""

    by_row: SequenceOf[DraftProposal | None]  # one entry per row of the plan
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens that one row committed, before the finish rules have looked at them."""

    row: PlannedRow
    token_ids: tuple[int, ...]  # accepted drafts and the target's own token; empty for a prompt chunk
    logprobs: tuple[TokenLogprob, ...] = ()
    drafted: tuple[int, ...] = ()
    accepted: int = 0
    tested: int = 0
    trace: RoundTrace | None = None
