"""One tree while a draft head draws it: each node reads the head's own guess of the feature behind its parent."""

from collections.abc import Mapping

import torch

from paceline.core.drafts import DraftBudget, DraftTree
from paceline.drafting.candidates import Ranks, tree_of
from paceline.drafting.head_passes import ContextResult
from paceline.drafting.head_session import HeadSession
from paceline.drafting.model_session import num_common_nodes
from paceline.drafting.tree_growth import TreeGrowth
from paceline.modeling.head_runner import HeadRow
from paceline.verification.draft_ids import DraftIds
from paceline.verification.sampler_state import SamplerState


class HeadGrowth(TreeGrowth):
    """Feeds each level in turn, behind a context that is computed. EAGLE-2 (Li et al. 2024), MTP (DeepSeek-V3, 2024).

    Level d is computed by module d + 1, the last one again where there are no more. A module sees K/V of its own only,
    so where it takes over it computes the nodes above as well, from what the module before it made of their parents.
    """

    def __init__(
        self,
        session: HeadSession,
        sampler: SamplerState,
        context: ContextResult,
        *,
        limits: DraftBudget,
        end_token_ids: frozenset[int],
        max_law_tokens: int,
        draft_ids: DraftIds | None,
        shape: Mapping[Ranks, int] | None = None,
    ) -> None:
        """Draft behind what ``context`` says of the newest token; see `TreeGrowth`."""
        super().__init__(
            session,
            sampler,
            limits=limits,
            end_token_ids=end_token_ids,
            max_law_tokens=max_law_tokens,
            draft_ids=draft_ids,
            shape=shape,
        )
        self._session = session
        self._roots = context.hidden  # of the newest token, by module
        self._module = 1
        self._hidden: dict[Ranks, torch.Tensor] = {(): self._roots[0]}  # what `_module` made of each node
        self._features: dict[Ranks, torch.Tensor] = {}  # what `_module` reads at each node
        self._computed = DraftTree((), ())  # nodes whose K/V of `_module` lie behind the context
        self._num_known = 0  # leading nodes of the next row's tree that it does not compute
        self.add_level(context.logits[0][None])

    def next_row(self) -> tuple[int, HeadRow]:
        """The pass that gives the logits of the last level, and its module."""
        module = min(self.level[0].depth + 1, len(self._roots))
        changed = module != self._module
        for node in self.kept if changed else self.level:
            self._features[node.ranks] = self._hidden[node.ranks[:-1]]
        if changed:
            self._module, self._computed = module, DraftTree((), ())
            self._hidden = {(): self._roots[module - 1]}
        tree = tree_of(self.kept)
        known = self._num_known = min(num_common_nodes(self._computed, tree), len(tree) - len(self.level))
        features = torch.stack([self._features[node.ranks] for node in self.kept[known:]])
        first = self._session.first + module - 1
        return module, self._session.tree_row(
            tree.token_ids[known:], tree.parents, features, first=first, num_logits=len(self.level)
        )

    def grow(self, logits: torch.Tensor, hidden: torch.Tensor) -> None:
        """Add a level from ``logits`` [last level, draft vocab] and ``hidden`` [nodes of the row, hidden]."""
        self._computed = tree_of(self.kept)
        for node, vector in zip(self.kept[self._num_known :], hidden, strict=True):
            self._hidden[node.ranks] = vector
        self.add_level(logits)


class ParallelGrowth(TreeGrowth):
    """Heads that see the newest feature only: all nodes of a depth share one ranking. Medusa, Gloeckle et al. 2024."""

    def fill(self, logits: torch.Tensor) -> None:
        """Add all levels from ``logits`` [depths, draft vocab]."""
        for depth_logits in logits:
            if self.done:
                break
            self.add_level(depth_logits.expand(len(self.level), -1))
