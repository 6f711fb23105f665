"""A draft model's session: its tokens, and the K/V computed for them."""

from itertools import takewhile

from paceline.core.drafts import DraftOpening, DraftRequest, DraftTree, NeedSync
from paceline.drafting.drawing_session import DrawingSession
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow

_NO_DRAFTS = DraftTree((), ())


class ModelSession(DrawingSession):
    """One sequence at a draft model."""

    # [0, num_computed)             K/V valid in `table`
    # [num_computed, len(tokens))   committed, still to compute; no draft before that is done
    # then one slot per draft node  K/V of own drafts; kept as far as they get committed

    def __init__(self, opening: DraftOpening, table: PageTable) -> None:
        super().__init__(opening)
        self.table = table
        self._computed: list[int] = []  # context ids whose K/V is valid
        self._drafted = _NO_DRAFTS  # nodes whose K/V lies behind that
        self._num_shared = 0  # leading tokens whose pages other sessions may hold too: they are never written again

    def apply(self, row: DraftRequest) -> NeedSync | int:
        """Bring the context up to date."""
        kept = super().apply(row)
        if isinstance(kept, NeedSync):
            return kept
        if min(kept, len(self.tokens) - 1) < self._num_shared:
            self.drop_cache()
        elif kept < len(self._computed):
            self.rewind(kept)
        return kept

    def keep_committed_drafts(self) -> list[tuple[int, int]]:
        """Make K/V of drafts that are context now part of it, and give back those of all others.

        Returns the (source slot, target slot) pairs whose K/V the caller must move: see `PageTable.keep_path`.
        """
        computed = len(self._computed)
        nodes = self._committed_nodes()
        if not self._drafted.token_ids:
            return []
        self._computed.extend(self._drafted.token_ids[node] for node in nodes)
        self._drafted = _NO_DRAFTS
        return self.table.keep_path(computed, [computed + node for node in nodes])

    def _committed_nodes(self) -> list[int]:
        """Path of drafted nodes that the context behind the computed part follows."""
        nodes: list[int] = []
        for token_id in self.tokens.slice(len(self._computed)):
            below = self._drafted.children(nodes[-1] if nodes else -1)
            node = next((child for child in below if self._drafted.token_ids[child] == token_id), None)
            if node is None:
                break
            nodes.append(node)
        return nodes

    @property
    def num_computed(self) -> int:
        """Context tokens whose K/V is valid."""
        return len(self._computed)

    @property
    def num_missing(self) -> int:
        """Context tokens that have no K/V yet."""
        return len(self.tokens) - self.num_computed

    def share_with(self, donor: "ModelSession", page_size: int) -> None:
        """Begin with the donor's K/V as far as both texts agree, in whole pages; this one has none of its own.

        The last token stays out: it is fed for the logits behind it.
        """
        room = min(donor.num_computed, len(donor.tokens) - 1, len(self.tokens) - 1)
        agreed = takewhile(lambda place: donor.tokens[place] == self.tokens[place], range(room))
        num_pages = sum(1 for _ in agreed) // page_size
        if num_pages == 0:
            return
        self.table.share(donor.table.pages[:num_pages])
        num_tokens = num_pages * page_size
        self._computed = donor._computed[:num_tokens]  # noqa: SLF001 - of the same class
        self._num_shared = num_tokens
        donor._num_shared = max(donor._num_shared, num_tokens)  # noqa: SLF001 - of the same class

    def rewind(self, length: int) -> None:
        """Keep the K/V of the first ``length`` context tokens at most, and of no draft; never below what is shared."""
        self._drafted = _NO_DRAFTS
        del self._computed[length:]
        self.table.truncate(len(self._computed))

    def context_row(self, num_logits: int, max_tokens: int | None = None) -> ForwardRow:
        """The pass over what is missing of the context, or over its next ``max_tokens``."""
        start = self.num_computed
        token_ids = self.tokens.slice(start, None if max_tokens is None else start + max_tokens)
        self.table.extend_to(start + len(token_ids))
        return ForwardRow(token_ids, start, self.table, num_logits)

    def tree_row(self, tree: DraftTree, num_logits: int) -> ForwardRow:
        """The pass over ``tree`` behind the whole context, the logits of its last ``num_logits`` nodes wanted.

        Leading nodes that were drafted before have their K/V already; those to compute are its last level at least.
        """
        known = min(num_common_nodes(self._drafted, tree), len(tree) - num_logits)
        start = len(self.tokens) + known
        self.table.extend_to(len(self.tokens) + len(tree))
        return ForwardRow(tree.token_ids[known:], start, self.table, num_logits, tree.parents)

    def mark_computed(self, row: ForwardRow) -> None:
        """The pass over a row from `context_row` has run."""
        self._computed.extend(row.token_ids)

    def mark_drafted(self, tree: DraftTree) -> None:
        """The pass over ``tree`` has run."""
        self._drafted = tree

    def drop_cache(self) -> None:
        """Give back all pages; the context is computed again when it is needed."""
        self._computed.clear()
        self._drafted = _NO_DRAFTS
        self._num_shared = 0
        self.table.free()


def num_common_nodes(known: DraftTree, tree: DraftTree) -> int:
    """Number of leading nodes that both trees have."""
    nodes = zip(known.token_ids, known.parents, tree.token_ids, tree.parents, strict=False)
    return next((place for place, (a, b, c, d) in enumerate(nodes) if (a, b) != (c, d)), min(len(known), len(tree)))
