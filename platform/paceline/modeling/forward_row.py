"""One sequence's part of a flat batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.kvcache.page_pool import PageTable


@dataclass(frozen=True, slots=True)
class ForwardRow:
    """Tokens of one sequence to compute in this pass.

    ``[0, start)`` of the sequence has valid K/V in ``table``; the pass computes ``token_ids`` at
    positions ``start, start + 1, ...`` and returns logits for the last ``num_logits`` of them. The
    table already covers ``start + len(token_ids)`` tokens.

    ``parents`` makes the last ``len(parents)`` tokens a tree of drafts, as in `DraftTree`: each is the
    parent's index among them, or -1 for the token before the tree. Node i stands in the i-th slot behind
    that token, at the position that its depth gives, and sees that token's context and its own ancestors.
    The tree may begin before ``start``: its first nodes then have K/V from an earlier pass. Empty: all tokens
    follow one another.

    Places ``[0, first)`` are no part of the context: no query sees them, and positions stay those of the sequence.
    ``first`` is at most ``start``.
    """

    token_ids: Sequence[int]
    start: int
    table: PageTable
    num_logits: int
    parents: Sequence[int] = ()
    first: int = 0

    @property
    def stop(self) -> int:
        """Places that the table covers once the row is computed."""
        return self.start + len(self.token_ids)

    @property
    def branches(self) -> bool:
        """Whether some node's parent is not the token right before it."""
        return any(parent != node - 1 for node, parent in enumerate(self.parents))

    @property
    def tree_start(self) -> int:
        """Place of the first node of the tree; `stop` where nothing branches."""
        return self.stop - len(self.parents) if self.branches else self.stop
