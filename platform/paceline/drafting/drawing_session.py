"""A session of a method that draws its drafts: the prefix that its draws depend on, and how far they may go."""

from collections.abc import Iterable

from paceline.core.drafts import DraftBudget, DraftOpening, DraftRequest, NeedSync
from paceline.drafting.sessions import DraftSession
from paceline.verification.sampler_state import SamplerState


class DrawingSession(DraftSession):
    """One sequence whose drafts are drawn as the target draws."""

    def __init__(self, opening: DraftOpening) -> None:
        super().__init__(opening)
        self._sampler: SamplerState | None = None

    def apply(self, row: DraftRequest) -> NeedSync | int:
        """Bring the context up to date."""
        kept = super().apply(row)
        if not isinstance(kept, NeedSync) and self._sampler is not None and self._sampler.position > kept:
            self._sampler = None
        return kept

    def draft_limits(self, budget: DraftBudget, context_limit: int) -> DraftBudget:
        """What may be drafted now: inside the budget and inside ``context_limit`` positions.

        Nothing before the whole prompt is here, since draws count their output from its end.
        """
        depth = 0
        if len(self.tokens) >= max(1, self.opening.prompt_tokens):
            depth = max(0, min(budget.max_depth, budget.max_nodes, context_limit - len(self.tokens)))
        max_nodes = budget.max_nodes if depth and budget.top_k > 1 else depth
        return DraftBudget(depth, max_nodes, max(1, budget.top_k))

    def sampler(self, eos_token_ids: Iterable[int]) -> SamplerState:
        """State of the draws behind the last context token; the whole prompt must be here."""
        if self._sampler is None:
            self._sampler = SamplerState(
                self.opening.sampling,
                prompt_token_ids=self.tokens.slice(0, self.opening.prompt_tokens),
                eos_token_ids=eos_token_ids,
                seed=self.opening.seed,
                choice=self.opening.choice,
            )
        self._sampler.commit(self.tokens.slice(self._sampler.position))
        return self._sampler

    def end_token_ids(self, eos_token_ids: frozenset[int]) -> frozenset[int]:
        """Tokens that end the answer."""
        sampling = self.opening.sampling
        return frozenset(sampling.stop_token_ids).union(() if sampling.ignore_eos else eos_token_ids)
