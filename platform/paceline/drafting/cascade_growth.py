"""One proposal of a cascade while it grows: what the level below proposes, as far as the model agrees, and its own."""

import logging
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

import torch

from paceline.core.drafts import DraftBudget, DraftProposal, DraftTree, DrawRule
from paceline.drafting.candidates import Candidate, Ranks, cheapest, tree_of
from paceline.drafting.cascade_below import Question
from paceline.drafting.fixed_shape import fixed_shape
from paceline.drafting.model_session import ModelSession
from paceline.errors import EngineFailedError
from paceline.modeling.forward_row import ForwardRow
from paceline.verification.draft_draw import DraftChildren, draft_children
from paceline.verification.draft_ids import DraftIds
from paceline.verification.sampler_state import SamplerState

logger = logging.getLogger(__name__)

_ROOT = -1
NO_DRAFTS = DraftTree((), ())


class Correction(NamedTuple):
    """What a pass made of the drafts of the level below."""

    proposed: int  # tokens
    kept: int  # of them
    corrected: bool  # whether the model put a token of its own in the place of a draft
    moves: list[tuple[int, int]]  # K/V to be copied, as (source slot, target slot), before anything is written


class CascadeGrowth:
    """The tokens that the model itself would draft one by one, found several to a pass.

    At every place the model makes its own choice, the one that a draft model makes there: argmax(log law + noise of
    the request), the argmax, or a draw from the law that is sent. A draft of the level below is kept iff it *is* that
    choice; at the first other one the choice stands in its place. So what goes up has the model's law whatever was
    proposed, and each token's law can be sent along: the level below decides how many passes it takes, and no more.

    With a ``top_k`` the model's further choices stand beside its first one, without anything below them. Drafts that
    are draws (INDEPENDENT) fill a shape settled beforehand: see `DraftGrowth`. Of others the best are kept, and none
    follows a token that ends the answer.
    """

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
        """Draft within ``limits``. ``sampler`` is left as it is found. ``draft_ids``: tokens of the logits."""
        self._session = session
        self._sampler = sampler
        self._limits = limits
        self._top_k = max(1, limits.top_k)
        self._depth = min(limits.max_depth, limits.max_nodes)
        self._shape: Mapping[Ranks, int] | None = None
        if session.opening.rule is DrawRule.INDEPENDENT and not sampler.params.greedy:
            self._shape = fixed_shape(limits.max_depth, limits.max_nodes, self._top_k)
            self._depth = next(depth for depth in count() if (0,) * depth not in self._shape)
        self._end_token_ids = end_token_ids
        self._max_law_tokens = max_law_tokens
        self._draft_ids = draft_ids
        self._candidates: list[Candidate] = []
        self._tip = Candidate((), (), 0.0)  # the last of the model's own choices, with the path to it
        self._num_stored = 0  # leading tokens of the path that have K/V behind the context
        self._below = NO_DRAFTS
        self._context: ForwardRow | None = None  # what the pass computes of it
        self._failed = False
        # The last context token is fed again if need be: its logits are the first choice's.
        session.rewind(len(session.tokens) - 1)

    @property
    def session(self) -> str:
        """Name of the session."""
        return self._session.opening.session

    @property
    def done(self) -> bool:
        """Whether the proposal is complete."""
        return self._failed or not self._num_choices

    @property
    def _num_choices(self) -> int:
        """Choices of the model that are wanted behind the tip."""
        path = self._tip.token_ids
        if self._shape is not None:
            return self._shape.get(self._tip.ranks, 0)
        if len(path) >= self._depth or (path and path[-1] in self._end_token_ids):
            return 0
        return self._top_k if not path or self._tip in cheapest(self._candidates, self._limits.max_nodes) else 0

    def question(self) -> Question:
        """What the level below is asked next: all that is wanted but the last token, which is the model's own."""
        path = self._tip.token_ids
        depth = self._depth - len(path) - 1
        nodes = self._limits.max_nodes - len(path) if self._top_k > 1 else depth
        budget = DraftBudget(depth, nodes if depth else 0, self._top_k)
        return Question(self.session, self._session.tokens, path, budget)

    def next_row(self, below: DraftTree) -> ForwardRow:
        """The pass over what is missing of the context and of the path, and over ``below`` behind them."""
        self._below = below
        path, num_context = self._tip.token_ids, len(self._session.tokens)
        self._context = None if path else self._session.context_row(num_logits=0)
        missing, start = path[self._num_stored :], num_context + self._num_stored
        if self._context is not None:
            missing, start = tuple(self._context.token_ids), self._context.start
        token_ids = (*missing, *below.token_ids)
        table = self._session.table
        table.extend_to(start + len(token_ids))
        return ForwardRow(token_ids, start, table, 1 + len(below), below.parents)

    def take(self, logits: torch.Tensor) -> Correction:
        """Go down the tree of the last `next_row` with its ``logits`` [1 + nodes, vocab]."""
        if self._context is not None:
            self._session.mark_computed(self._context)
        tree, base = self._below, len(self._session.tokens) + len(self._tip.token_ids)
        path: list[int] = []
        corrected = False
        with self._sampler.walk():
            for token_id in self._tip.token_ids:
                self._sampler.push(token_id)
            while not self.done and self._choose(logits[1 + (path[-1] if path else _ROOT)]):
                below = tree.children(path[-1] if path else _ROOT)
                token_id = self._tip.token_ids[-1]
                self._sampler.push(token_id)
                child = next((node for node in below if tree.token_ids[node] == token_id), None)
                if child is None:
                    corrected = bool(below)
                    break
                path.append(child)
        moves = self._session.table.keep_path(base, [base + node for node in path])
        self._num_stored = base - len(self._session.tokens) + len(path)
        self._session.mark_drafted(DraftTree.chain(self._tip.token_ids[: self._num_stored]))
        return Correction(len(tree), len(path), corrected, moves)

    def proposal(self, draft_ms: float) -> DraftProposal:
        """What was drafted."""
        kept = cheapest(self._candidates, self._limits.max_nodes)  # all of them, where they fill a shape
        return DraftProposal(
            session=self.session,
            base_length=len(self._session.tokens),
            base_hash=self._session.context_hash,
            tree=tree_of(kept),
            laws=tuple(candidate.law for candidate in kept if candidate.law is not None),
            draft_ms=draft_ms,
        )

    def _choose(self, logits: torch.Tensor) -> bool:
        """Add the model's choice behind the tip, and what it would choose next; False where it has none."""
        above = self._tip
        drawn = self._children(logits)
        self._failed = not drawn.token_ids
        children = [
            Candidate((*above.ranks, rank), (*above.token_ids, token_id), above.cost + cost, drawn.law)
            for rank, (token_id, cost) in enumerate(zip(drawn.token_ids, drawn.costs, strict=True))
        ]
        self._candidates += children
        self._tip = children[0] if children else above
        return bool(children)

    def _children(self, logits: torch.Tensor) -> DraftChildren:
        try:
            return draft_children(
                logits,
                self._sampler,
                rule=self._session.opening.rule,
                round_start=len(self._session.tokens),
                max_law_tokens=self._max_law_tokens,
                count=self._num_choices,
                draft_ids=self._draft_ids,
            )
        except EngineFailedError as error:
            logger.warning("session %s: drafting stopped: %s", self.session, error)
            return DraftChildren((), (), None)
