"""What goes into a verifier and what comes out."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from paceline.core.drafts import DraftProposal, DraftTree
from paceline.verification.sampler_state import SamplerState

_NO_DRAFTS = DraftTree((), ())


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """One sequence after a target pass over its last committed token and its drafts.

    ``logits`` is [1 + nodes, vocab]: row 0 follows the last committed token, row 1 + i the i-th node. The
    proposal starts where ``state`` ends. No two rows of a call share a state.
    """

    state: SamplerState
    logits: torch.Tensor
    proposal: DraftProposal | None

    @property
    def tree(self) -> DraftTree:
        """The drafts; without nodes if there is no proposal."""
        return _NO_DRAFTS if self.proposal is None else self.proposal.tree


class Verdict(NamedTuple):
    """Outcome of one round of one sequence."""

    token_ids: tuple[int, ...]  # the accepted drafts, then the target's own token
    accepted: int
    tested: int  # levels that were looked at: none after the one where all drafts were rejected
    path: tuple[int, ...] = ()  # nodes of the accepted drafts, from the root down
