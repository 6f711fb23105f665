"""A draft model's session: its tokens, the K/V computed for them, and the prefix its draws depend on."""

from collections.abc import Iterable, Sequence

from paceline.core.drafts import DraftBudget, DraftOpening, DraftRequest, NeedSync
from paceline.drafting.sessions import DraftSession
from paceline.kvcache.page_pool import PageTable
from paceline.verification.sampler_state import SamplerState


class ModelSession(DraftSession):
    """One sequence at a draft model."""

    # [0, num_computed)             K/V valid in `table`
    # [num_computed, len(tokens))   committed, still to compute; no draft before that is done
    # [len(tokens), num_cached)     K/V of own drafts; kept as far as they get committed

    def __init__(self, opening: DraftOpening, table: PageTable) -> None:
        super().__init__(opening)
        self.table = table
        self._cached: list[int] = []  # ids whose K/V is valid: the context's, then own drafts'
        self._sampler: SamplerState | None = None

    def apply(self, row: DraftRequest) -> NeedSync | int:
        """Bring the context up to date; K/V of drafts that were committed stays valid."""
        kept = super().apply(row)
        if isinstance(kept, NeedSync):
            return kept
        valid = min(kept, len(self._cached))
        end = min(len(self._cached), len(self.tokens))
        while valid < end and self._cached[valid] == self.tokens[valid]:
            valid += 1
        self.rewind(valid)
        if self._sampler is not None and self._sampler.position > kept:
            self._sampler = None
        return kept

    @property
    def num_computed(self) -> int:
        """Context tokens whose K/V is valid."""
        return min(len(self._cached), len(self.tokens))

    @property
    def num_missing(self) -> int:
        """Context tokens that have no K/V yet."""
        return len(self.tokens) - self.num_computed

    @property
    def num_cached(self) -> int:
        """Tokens whose K/V is valid, own drafts included."""
        return len(self._cached)

    def rewind(self, length: int) -> None:
        """Keep the K/V of the first ``length`` tokens."""
        if length < len(self._cached):
            del self._cached[length:]
            self.table.truncate(length)

    def mark_computed(self, token_ids: Sequence[int]) -> None:
        """The pass that computes these tokens behind the cached ones has run."""
        self._cached.extend(token_ids)

    def drop_cache(self) -> None:
        """Give back all pages; the context is computed again when it is needed."""
        self._cached.clear()
        self.table.free()

    def draft_limit(self, budget: DraftBudget, context_limit: int) -> int:
        """Tokens that may be drafted now: inside the budget and inside ``context_limit`` positions.

        None before the whole prompt is here, since draws count their output from its end.
        """
        if len(self.tokens) < max(1, self.opening.prompt_tokens):
            return 0
        return max(0, min(budget.max_depth, budget.max_nodes, context_limit - len(self.tokens)))

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
