"""One tree while it is drawn, level by level, from the logits of whatever drafts it."""

import logging
from collections.abc import Mapping, Sequence
from itertools import chain

import torch

from paceline.core.drafts import DraftBudget, DraftProposal, DrawRule
from paceline.drafting.candidates import Candidate, Ranks, breadth_first, cheapest, tree_of
from paceline.drafting.fixed_shape import fixed_shape
from paceline.drafting.sessions import DraftSession
from paceline.errors import EngineFailedError
from paceline.verification.draft_draw import DraftChildren, draft_children
from paceline.verification.draft_ids import DraftIds
from paceline.verification.sampler_state import SamplerState

logger = logging.getLogger(__name__)

ROOT = Candidate((), (), 0.0)  # the last context token
_NO_CHILDREN = DraftChildren((), (), None)


class TreeGrowth:
    """Adds a level at a time; a chain is a tree with one child a node.

    Drafts that are draws (INDEPENDENT) fill a shape settled beforehand, and never stop early: a short tree is
    ready sooner, so whether it is in time would depend on what was drawn, and the law of the drafts that are
    used would not be q. Others are chosen: the cheapest nodes of all that were seen are kept, which is why a
    level has no more nodes than the budget, and no draft follows a token that ends the answer. A method with a
    shape of its own (Medusa) fills that one in either case.
    """

    def __init__(
        self,
        session: DraftSession,
        sampler: SamplerState,
        *,
        limits: DraftBudget,
        end_token_ids: frozenset[int],
        max_law_tokens: int,
        draft_ids: DraftIds | None = None,
        shape: Mapping[Ranks, int] | None = None,
    ) -> None:
        """Draft within ``limits``; nothing behind one of ``end_token_ids``. ``sampler`` is left as it is found.

        ``draft_ids`` says which token each logit belongs to; ``shape`` gives the number of children of every inner
        node, and stays within ``limits``.
        """
        self._context = session
        self._sampler = sampler
        self._limits = limits
        self._shape = shape
        self._are_draws = session.opening.rule is DrawRule.INDEPENDENT and not sampler.params.greedy
        if shape is None and self._are_draws:
            self._shape = fixed_shape(limits.max_depth, limits.max_nodes, max(1, limits.top_k))
        self._end_token_ids = end_token_ids
        self._max_law_tokens = max_law_tokens
        self._draft_ids = draft_ids
        self._kept: list[Candidate] = []  # breadth first
        self._level = [ROOT]  # the children of these come next

    @property
    def done(self) -> bool:
        """Whether the tree is complete."""
        return not any(self._num_children(candidate) for candidate in self._level)

    @property
    def level(self) -> Sequence[Candidate]:
        """Nodes whose logits `add_level` wants, breadth first."""
        return self._level

    @property
    def kept(self) -> Sequence[Candidate]:
        """All nodes so far, breadth first; those of `level` are last."""
        return self._kept

    def add_level(self, logits: torch.Tensor) -> None:
        """Add the children of `level`, drawn from ``logits`` [nodes of the level, vocab or draft vocab]."""
        depth = self._level[0].depth + 1
        children = [self._children(node, node_logits) for node, node_logits in zip(self._level, logits, strict=True)]
        grown = [*self._kept, *chain.from_iterable(children)]
        self._kept = breadth_first(grown) if self._shape is not None else cheapest(grown, self._limits.max_nodes)
        self._level = [candidate for candidate in self._kept if candidate.depth == depth]

    def proposal(self, draft_ms: float) -> DraftProposal:
        """What was drafted."""
        return DraftProposal(
            session=self._context.opening.session,
            base_length=len(self._context.tokens),
            base_hash=self._context.context_hash,
            tree=tree_of(self._kept),
            laws=tuple(candidate.law for candidate in self._kept if candidate.law is not None),
            draft_ms=draft_ms,
        )

    def _num_children(self, candidate: Candidate) -> int:
        """Most children that a node may get."""
        if not self._are_draws and candidate.token_ids and candidate.token_ids[-1] in self._end_token_ids:
            return 0
        if self._shape is not None:
            return self._shape.get(candidate.ranks, 0)
        return 0 if candidate.depth >= self._limits.max_depth else max(1, self._limits.top_k)

    def _children(self, parent: Candidate, logits: torch.Tensor) -> list[Candidate]:
        drawn = self._draw(parent, logits, self._num_children(parent))
        return [
            Candidate((*parent.ranks, rank), (*parent.token_ids, token_id), parent.cost + cost, drawn.law)
            for rank, (token_id, cost) in enumerate(zip(drawn.token_ids, drawn.costs, strict=True))
        ]

    def _draw(self, parent: Candidate, logits: torch.Tensor, count: int) -> DraftChildren:
        if count == 0:
            return _NO_CHILDREN
        with self._sampler.walk():
            for token_id in parent.token_ids:
                self._sampler.push(token_id)
            try:
                return draft_children(
                    logits,
                    self._sampler,
                    rule=self._context.opening.rule,
                    round_start=len(self._context.tokens),
                    max_law_tokens=self._max_law_tokens,
                    count=count,
                    draft_ids=self._draft_ids,
                )
            except EngineFailedError as error:
                logger.warning("session %s: drafting stopped: %s", self._context.opening.session, error)
                return _NO_CHILDREN
