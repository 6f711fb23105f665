"""What one step computes."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch

from paceline.core.drafts import DraftProposal
from paceline.engine.sequence import Sequence
from paceline.verification.verifier import Verdict


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
class Decision:
    """What one pass decided for one row that completes, before the finish rules have looked at it."""

    row: PlannedRow
    proposal: DraftProposal | None
    logits: torch.Tensor  # [1 + number of drafts, vocab], unwarped
    verdict: Verdict

    @property
    def drafted(self) -> tuple[int, ...]:
        """Draft ids that were in the pass."""
        return self.proposal.tree.token_ids if self.proposal else ()


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Where the time of one step went, in seconds."""

    wait_s: float  # for drafts
    pass_s: float  # target pass and verification
