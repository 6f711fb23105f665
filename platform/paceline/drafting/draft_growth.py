"""One tree while a draft model draws it, level by level."""

import torch

from paceline.core.drafts import DraftBudget
from paceline.drafting.candidates import tree_of
from paceline.drafting.model_session import ModelSession
from paceline.drafting.tree_growth import ROOT, TreeGrowth
from paceline.modeling.forward_row import ForwardRow
from paceline.verification.draft_ids import DraftIds
from paceline.verification.sampler_state import SamplerState


class DraftGrowth(TreeGrowth):
    """Feeds what the model has not seen, then each level in turn."""

    def __init__(
        self,
        session: ModelSession,
        sampler: SamplerState,
        *,
        limits: DraftBudget,
        end_token_ids: frozenset[int],
        max_law_tokens: int,
        draft_ids: DraftIds | None = None,
    ) -> None:
        """See `TreeGrowth`."""
        super().__init__(
            session,
            sampler,
            limits=limits,
            end_token_ids=end_token_ids,
            max_law_tokens=max_law_tokens,
            draft_ids=draft_ids,
        )
        self._session = session
        # The last context token is fed again if need be: its logits are the first level's.
        session.rewind(len(session.tokens) - 1)

    def next_row(self) -> ForwardRow:
        """The pass that gives the logits of the last level."""
        if self.level[0] is ROOT:
            return self._session.context_row(num_logits=1)
        return self._session.tree_row(tree_of(self.kept), num_logits=len(self.level))

    def grow(self, row: ForwardRow, logits: torch.Tensor) -> None:
        """Add a level from ``logits`` [nodes of the last level, vocab], the result of ``row`` from `next_row`."""
        if self.level[0] is ROOT:
            self._session.mark_computed(row)
        else:
            self._session.mark_drafted(tree_of(self.kept))
        self.add_level(logits)
