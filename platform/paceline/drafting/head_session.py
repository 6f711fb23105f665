"""A session of a draft head: its tokens, the features they came with, and what the head has computed of both."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from paceline.core.drafts import DraftOpening, FeatureBlock
from paceline.drafting.drawing_session import DrawingSession
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.head_memory import HeadMemory
from paceline.modeling.head_runner import HeadRow


class Stretch(NamedTuple):
    """Tokens ``[start, stop)`` of a context."""

    start: int
    stop: int


class HeadSession(DrawingSession):
    """One sequence at a head.

    The head's context is ``[first, len(tokens))``: token 0 never has a feature, and where features are missing the
    context starts behind them. Its K/V lie in the slots of ``table``, which is the session's own, or the target's.
    """

    def __init__(self, opening: DraftOpening, memory: HeadMemory, table: PageTable) -> None:
        super().__init__(opening)
        self.table = table
        self.first = 1
        self._memory = memory

    @property
    def has_context(self) -> bool:
        """Whether the newest token has a feature, without which nothing can be drafted."""
        return self.first < len(self.tokens)

    def take_features(self, kept: int, block: FeatureBlock | None) -> None:
        """Store what came with the newest tokens; all from ``kept`` on are new. The table has room for all tokens."""
        length, count = len(self.tokens), 0 if block is None else block.count
        begin, before = max(1, length - count), self.first
        self.first = min(before, begin) if begin <= max(1, kept) else begin
        slots = self.table.slot_array(length)
        # Where the context starts earlier than it did, later modules have not been at its former beginning.
        valid = kept if self.first >= before else min(self.first, kept)
        self._memory.computed[slots[valid:]] = False
        if block is not None and begin < length:
            rows = torch.frombuffer(bytearray(block.data), dtype=torch.bfloat16).view(count, -1)
            target = torch.from_numpy(slots[begin - 1 : length - 1].astype(np.int64))
            features = self._memory.features
            features.write(target.to(features.device), rows[count - (length - begin) :].to(features.device))

    def forget(self) -> None:
        """Lose everything: features cannot be computed again here, so the tokens have to come anew."""
        self.tokens.truncate(0)
        self._sampler = None
        self.first = 1
        self.table.free()

    def missing(self, max_tokens: int) -> Stretch | None:
        """The first tokens before the newest one that the head has not computed; the newest is computed each time."""
        stop = len(self.tokens) - 1
        if stop <= self.first:
            return None
        computed = self._memory.computed[self.table.slot_array(stop)[self.first :]]
        holes = np.flatnonzero(~computed)
        if not len(holes):
            return None
        start = int(holes[0])
        behind = np.flatnonzero(computed[start:])
        length = int(behind[0]) if len(behind) else len(computed) - start
        return Stretch(self.first + start, self.first + start + min(length, max_tokens))

    @property
    def tail(self) -> Stretch:
        """From the first token that is not computed to the newest."""
        missing = self.missing(1)
        return Stretch(len(self.tokens) - 1 if missing is None else missing.start, len(self.tokens))

    def target_features(self, stretch: Stretch) -> torch.Tensor:
        """``[tokens, size]``: what the target computed before each token."""
        slots = self.table.slot_array(stretch.stop - 1)[stretch.start - 1 :]
        features = self._memory.features
        return features.read(torch.from_numpy(slots.astype(np.int64)).to(features.device))

    def context_row(self, stretch: Stretch, features: torch.Tensor, *, first: int, num_logits: int) -> HeadRow:
        """The pass of a module over ``stretch``; its context starts at ``first``."""
        self.table.extend_to(stretch.stop)
        token_ids = self.tokens.slice(*stretch)
        return HeadRow(ForwardRow(token_ids, stretch.start, self.table, num_logits, first=first), features)

    def tree_row(
        self, token_ids: Sequence[int], parents: Sequence[int], features: torch.Tensor, *, first: int, num_logits: int
    ) -> HeadRow:
        """The pass over the last ``token_ids`` of a tree with ``parents`` behind the context."""
        stop = len(self.tokens) + len(parents)
        self.table.extend_to(stop)
        row = ForwardRow(token_ids, stop - len(token_ids), self.table, num_logits, parents, first)
        return HeadRow(row, features)

    def mark_computed(self, stretch: Stretch) -> None:
        """All modules of the head have run over ``stretch`` with the target's features."""
        self._memory.computed[self.table.slot_array(stretch.stop)[stretch.start :]] = True
