"""Room for the K/V of sequences: what they share, how they grow, and what gives way when pages run short."""

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf

from paceline.engine.sequence import Sequence
from paceline.errors import CacheCorruptionError
from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.kvcache.prefix_tree import PrefixMatch, PrefixNode, PrefixTree
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

# Tokens by which each running sequence should be able to grow before another one is admitted. A promise of
# the whole output would leave most of the pool unused; none at all would admit only to pre-empt at once.
HEADROOM_TOKENS = 32


class KVRoom:
    """Pages of sequences and the prefix tree beside them.

    A sequence begins with the pages of the longest known prefix and grows as it goes. Whatever no running
    sequence uses is evicted when pages are needed. What still does not fit is the scheduler's to decide.
    """

    def __init__(self, pool: PagePool, *, prefix_cache: bool, metrics: Metrics) -> None:
        self._pool = pool
        self._prefix_cache = prefix_cache
        self._metrics = metrics
        self.prefixes = PrefixTree(pool)

    @property
    def num_free(self) -> int:
        """Pages that nobody holds, or that only the prefix tree holds and would give."""
        return self._pool.num_free + self.prefixes.num_evictable

    @property
    def capacity_tokens(self) -> int:
        """Longest sequence that fits if it is alone."""
        return self._pool.num_pages * self._pool.page_size

    def num_known(self, sequence: Sequence) -> int:
        """Tokens of a waiting sequence whose K/V are there; never all: the last one has to give logits."""
        return len(self._match(sequence).pages) * self._pool.page_size

    def admit(self, sequence: Sequence, beside: SequenceOf[Sequence]) -> bool:
        """Give a waiting sequence its known prefix and room for the rest of its tokens, or nothing at all.

        ``beside`` are the running sequences; they keep room to grow. Without any, whatever fits the pool is admitted.
        """
        match = self._match(sequence)
        self.prefixes.lock(match.node)
        needed = self._reach(sequence) - len(match.pages)
        needed += sum(max(0, self._reach(other) - _table(other).capacity) for other in beside)
        if beside and needed > self._spare:
            self.prefixes.unlock(match.node)
            return False
        sequence.table, sequence.prefix = PageTable(self._pool), match.node
        sequence.table.share(match.pages)
        sequence.num_computed = len(match.pages) * self._pool.page_size
        if not sequence.preemptions:
            sequence.num_cached = min(sequence.num_computed, sequence.num_prompt)
            self._metrics.count(catalogue.PREFIX_HIT_TOKENS, sequence.num_cached)
        if not self.hold(sequence):
            raise CacheCorruptionError(f"no room for sequence {sequence.key}, which fits the pool")
        return True

    def hold(self, sequence: Sequence) -> bool:
        """Promise room for all committed tokens; False if it is not there."""
        return self._promise(_table(sequence), len(sequence.tokens))

    def forget_look_ahead(self, sequence: Sequence) -> None:
        """Take back all that was promised and is not in use; `hold` promises what is needed again."""
        _table(sequence).shrink()

    def look_ahead(self, sequence: Sequence, wanted: int) -> int:
        """Promise slots for up to ``wanted`` draft nodes behind the committed tokens; returns for how many.

        Unused prefixes go for them: the pages come back after the pass, and a cache that has filled up would
        otherwise end all speculation.
        """
        table, num_tokens = _table(sequence), len(sequence.tokens)
        most = (table.capacity + self._spare) * self._pool.page_size - num_tokens
        nodes = max(0, min(wanted, most))
        self._promise(table, num_tokens + nodes)
        return nodes

    def publish(self, sequence: Sequence) -> None:
        """Share what a sequence has computed: committed tokens with valid K/V, never a draft."""
        if not self._prefix_cache:
            return
        table = _table(sequence)
        count = min(sequence.num_computed, len(sequence.tokens))
        match = self.prefixes.publish(sequence.tokens.slice(0, count), sequence.request.tenant_salt, table.pages)
        self._lock(sequence, match.node)
        table.share(match.pages)

    def release(self, sequence: Sequence, *, publish: bool) -> None:
        """Take back everything from a sequence. Harmless for one that has nothing."""
        if sequence.table is None:
            return
        if publish:
            self.publish(sequence)
        sequence.table.free()
        sequence.table = None
        self._lock(sequence, None)
        sequence.num_computed = 0

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise CacheCorruptionError unless the pages in use are those of ``running`` and of the prefix tree.

        Without any running sequence nothing is promised and no prefix is locked.
        """
        tables = [_table(sequence) for sequence in running]
        self._pool.check_integrity()
        self._pool.check_holders([self.prefixes.all_pages(), *(table.pages for table in tables)])
        self.prefixes.check_integrity()
        promised = sum(table.capacity - table.num_pages for table in tables)
        if promised != self._pool.num_reserved:
            raise CacheCorruptionError(
                f"{self._pool.num_reserved} are reserved, but sequences were promised {promised}"
            )
        if not tables and self.prefixes.num_evictable != self.prefixes.num_pages:
            raise CacheCorruptionError("prefixes are locked that no sequence uses")

    @property
    def _spare(self) -> int:
        """Pages that can be promised, after eviction if need be."""
        return self._pool.num_available + self.prefixes.num_evictable

    def _match(self, sequence: Sequence) -> PrefixMatch:
        return self.prefixes.match(sequence.tokens.slice(0, len(sequence.tokens) - 1), sequence.request.tenant_salt)

    def _promise(self, table: PageTable, num_tokens: int) -> bool:
        missing = self._pool.pages_for(num_tokens) - table.capacity - self._pool.num_available
        if missing > self.prefixes.num_evictable:
            return False
        if missing > 0:
            self._metrics.count(catalogue.EVICTED_PAGES, self.prefixes.evict(missing))
        table.grow(num_tokens)
        return True

    def _reach(self, sequence: Sequence) -> int:
        """Pages that a sequence may come to hold before long."""
        ahead = max(HEADROOM_TOKENS, sequence.request.plan.max_draft_tokens)
        return self._pool.pages_for(min(sequence.max_length, len(sequence.tokens) + ahead))

    def _lock(self, sequence: Sequence, node: PrefixNode | None) -> None:
        """Lock ``node`` in place of the prefix that the sequence had."""
        if node is not None:
            self.prefixes.lock(node)
        if sequence.prefix is not None:
            self.prefixes.unlock(sequence.prefix)
        sequence.prefix = node


def _table(sequence: Sequence) -> PageTable:
    if sequence.table is None:
        raise CacheCorruptionError(f"sequence {sequence.key} runs without pages")
    return sequence.table
