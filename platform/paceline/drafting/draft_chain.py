"""One chain while a draft model draws it, token by token."""

import logging

import torch

from paceline.core.drafts import DraftProposal, DraftTree, DrawRule, SparseLaw
from paceline.drafting.model_session import ModelSession
from paceline.errors import EngineFailedError
from paceline.modeling.forward_row import ForwardRow
from paceline.verification.draft_draw import draft_choice
from paceline.verification.sampler_state import SamplerState

logger = logging.getLogger(__name__)


class DraftChain:
    """Feeds what the model has not seen, then each draft in turn."""

    def __init__(
        self,
        session: ModelSession,
        sampler: SamplerState,
        *,
        limit: int,
        end_token_ids: frozenset[int],
        max_law_tokens: int,
    ) -> None:
        """Draft up to ``limit`` tokens; none behind one of ``end_token_ids``, where the answer ends.

        Under INDEPENDENT a chain never stops early: a short chain is ready sooner, so whether it is in
        time would depend on what was drawn, and the law of the drafts that are used would not be q.
        """
        self._session = session
        self._sampler = sampler
        self._limit = limit
        coupled = session.opening.rule is DrawRule.COUPLED
        self._end_token_ids = end_token_ids if coupled else frozenset()
        self._max_law_tokens = max_law_tokens
        self._drafted: list[int] = []
        self._laws: list[SparseLaw] = []
        self._failed = False
        # The last context token is fed again if need be: its logits are the first draft's.
        session.rewind(len(session.tokens) - 1)
        self._feed = session.tokens.slice(session.num_computed)

    @property
    def done(self) -> bool:
        """Whether the chain is complete."""
        ended = bool(self._drafted) and self._drafted[-1] in self._end_token_ids
        return self._failed or ended or len(self._drafted) >= self._limit

    def next_row(self) -> ForwardRow:
        """The pass that gives the next draft's logits."""
        table, start = self._session.table, self._session.num_cached
        table.extend_to(start + len(self._feed))
        return ForwardRow(self._feed, start, table, num_logits=1)

    def draw(self, logits: torch.Tensor) -> None:
        """Draw the next draft from ``logits`` [vocab], the result of `next_row`."""
        self._session.mark_computed(self._feed)
        try:
            token_id, law = draft_choice(
                logits,
                self._sampler,
                rule=self._session.opening.rule,
                round_start=len(self._session.tokens),
                max_law_tokens=self._max_law_tokens,
            )
        except EngineFailedError as error:
            logger.warning("session %s: drafting stopped: %s", self._session.opening.session, error)
            self._failed = True
            return
        self._sampler.push(token_id)
        self._drafted.append(token_id)
        if law is not None:
            self._laws.append(law)
        self._feed = (token_id,)

    def proposal(self, draft_ms: float) -> DraftProposal:
        """What was drafted."""
        return DraftProposal(
            session=self._session.opening.session,
            base_length=len(self._session.tokens),
            base_hash=self._session.context_hash,
            tree=DraftTree.chain(tuple(self._drafted)),
            laws=tuple(self._laws),
            draft_ms=draft_ms,
        )
