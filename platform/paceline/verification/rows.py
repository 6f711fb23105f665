"""What goes into a verifier and what comes out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from paceline.core.drafts import DraftProposal
from paceline.verification.draws import Draws
from paceline.verification.sampler_state import SamplerState


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """One sequence after a target pass over its last committed token and its drafts.

    ``logits`` is [1 + drafts, vocab]: row 0 follows the last committed token, row i the i-th draft. The
    proposal starts where ``state`` ends.
    """

    state: SamplerState
    logits: torch.Tensor
    proposal: DraftProposal | None

    @property
    def draft_token_ids(self) -> tuple[int, ...]:
        """Drafts in order; empty without a proposal."""
        return () if self.proposal is None else self.proposal.tree.token_ids


class Verdict(NamedTuple):
    """Outcome of one round of one sequence."""

    token_ids: tuple[int, ...]  # the accepted drafts, then the target's own token
    accepted: int
    tested: int  # drafts that were looked at: none after the first rejection
    path: tuple[int, ...] = ()  # nodes of the accepted drafts, from the root down


ChainRule = Callable[[VerifyRow, Draws], Verdict]
"""Verifies a chain of at least one draft. May push to the row's state: the caller undoes it."""


def verdict_of(drafts: tuple[int, ...], accepted: int, token_id: int) -> Verdict:
    """``accepted`` of ``drafts``, then ``token_id``."""
    return Verdict(
        (*drafts[:accepted], token_id), accepted, min(accepted + 1, len(drafts)), path=tuple(range(accepted))
    )
