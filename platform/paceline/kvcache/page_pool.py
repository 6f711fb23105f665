"""Pages of the KV cache: who holds which, and what is promised to whom."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from paceline.errors import CacheCorruptionError

PageArray = npt.NDArray[np.int32]  # [n] page numbers, no page twice
SlotArray = npt.NDArray[np.int32]  # [n] slots: page * page_size + offset

_NO_PAGES: PageArray = np.empty(0, np.int32)


class PagePool:
    """Hands out fixed-size pages with reference counts; knows nothing of tensors.

    Whoever will allocate *reserves* first, so that allocating inside a reservation cannot fail. Ask
    (`can_reserve`), then act (`reserve`).
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size  # tokens
        self.on_free: Callable[[SlotArray], None] | None = None
        """Hears of slots that nobody holds any more, before a page of theirs is handed out again."""
        self._free: PageArray = np.arange(num_pages - 1, -1, -1, dtype=np.int32)  # [0, num_free) is a stack
        self._num_free = num_pages
        self._references = np.zeros(num_pages, np.int32)
        self._reserved = 0  # pages promised and not yet allocated
        self._unreported: list[PageArray] = []  # free, and `on_free` has not heard of it

    @property
    def num_free(self) -> int:
        """Pages that nobody holds; some may be promised."""
        return self._num_free

    @property
    def num_reserved(self) -> int:
        """Pages that are promised and not allocated."""
        return self._reserved

    @property
    def num_available(self) -> int:
        """Pages that nobody holds and that are promised to nobody."""
        return self._num_free - self._reserved

    @property
    def num_held(self) -> int:
        """Pages with at least one holder."""
        return int(np.count_nonzero(self._references))

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold ``num_tokens`` tokens."""
        return -(-num_tokens // self.page_size)

    def can_reserve(self, num_pages: int) -> bool:
        """Whether ``num_pages`` more pages can be promised."""
        return num_pages <= self.num_available

    def reserve(self, num_pages: int) -> None:
        """Promise pages; the caller has asked `can_reserve`."""
        if not self.can_reserve(num_pages):
            raise CacheCorruptionError(f"reserved {num_pages} pages with {self.num_available} left")
        self._reserved += num_pages

    def unreserve(self, num_pages: int) -> None:
        """Take back a promise that is not needed any more."""
        self._reserved -= num_pages

    def allocate_reserved(self, num_pages: int) -> PageArray:
        """Turn promised pages into held ones."""
        self.report_freed()
        self._reserved -= num_pages
        self._num_free -= num_pages
        pages = self._free[self._num_free : self._num_free + num_pages][::-1].copy()
        self._references[pages] = 1
        return pages

    def retain(self, pages: PageArray) -> None:
        """Add a holder to each page."""
        self._references[pages] += 1

    def release(self, pages: PageArray) -> None:
        """Drop a holder of each page; a page without holders is free at once."""
        if not len(pages):
            return
        left = self._references[pages] - 1
        if left.min() < 0:
            raise CacheCorruptionError(f"page {pages[left.argmin()]} was released twice")
        self._references[pages] = left
        freed = pages[left == 0]
        self._free[self._num_free : self._num_free + len(freed)] = freed[::-1]
        self._num_free += len(freed)
        if self.on_free is not None and len(freed):
            self._unreported.append(freed)

    def report_freed(self) -> None:
        """Tell ``on_free`` what has become free since the last time; K/V that have to move have moved by then."""
        if self.on_free is not None and self._unreported:
            freed, self._unreported = np.concatenate(self._unreported), []
            self.on_free(slots_of(freed, self.page_size))

    def check_integrity(self) -> None:
        """Raise if a page was lost, duplicated or over-promised."""
        free = self._free[: self._num_free]
        if len(free) != len(np.unique(free)):
            raise CacheCorruptionError("a page is free twice")
        if self.num_free + self.num_held != self.num_pages or self._references[free].any():
            raise CacheCorruptionError(f"free {self.num_free} + held {self.num_held} != total {self.num_pages}")
        if not 0 <= self._reserved <= self.num_free:
            raise CacheCorruptionError(f"reserved {self._reserved} of {self.num_free} free pages")

    def check_holders(self, holdings: Iterable[PageArray]) -> None:
        """Raise unless the reference count of each page is the number of ``holdings`` that contain it."""
        counts = np.bincount(np.concatenate([_NO_PAGES, *holdings]), minlength=self.num_pages)
        wrong = np.flatnonzero(counts != self._references)
        if len(wrong):
            page = int(wrong[0])
            raise CacheCorruptionError(
                f"{len(wrong)} pages have other holders than they count: "
                f"page {page} has {counts[page]} and counts {self._references[page]}"
            )


def slots_of(pages: PageArray, page_size: int) -> SlotArray:
    """Slots of ``pages``, in order."""
    if page_size == 1:
        return pages
    offsets = np.arange(page_size, dtype=np.int32)
    slots: SlotArray = (pages[:, None] * np.int32(page_size) + offsets).reshape(-1)
    return slots


class PageTable:
    """Pages of one sequence, in order, and its share of the reservation.

    ``[0, num_tokens)`` of the sequence lie in `pages`; slots beyond are rolled back by `truncate`.
    """

    def __init__(self, pool: PagePool, max_tokens: int = 0) -> None:
        """Reserve room for ``max_tokens`` tokens; the caller has asked ``pool.can_reserve``."""
        self._pool = pool
        self._capacity = pool.pages_for(max_tokens)  # pages, held and promised
        self._num_pages = 0
        self._pages: PageArray = np.empty(max(16, self._capacity), np.int32)  # [0, num_pages) is in use
        # With one-token pages a slot is a page: one array serves as both.
        size = pool.page_size
        self._slots: SlotArray = self._pages if size == 1 else np.empty(len(self._pages) * size, np.int32)
        pool.reserve(self._capacity)

    @property
    def num_pages(self) -> int:
        """Pages that this table holds."""
        return self._num_pages

    @property
    def capacity(self) -> int:
        """Pages that this table holds or was promised."""
        return self._capacity

    @property
    def pages(self) -> PageArray:
        """Held pages, in order, as a view; valid until the table changes."""
        return self._pages[: self._num_pages]

    def can_grow(self, max_tokens: int) -> bool:
        """Whether room for ``max_tokens`` tokens in all is reserved or could be."""
        return self._pool.can_reserve(self._pool.pages_for(max_tokens) - self._capacity)

    def grow(self, max_tokens: int) -> None:
        """Reserve room for ``max_tokens`` tokens in all; the caller has asked `can_grow`."""
        surplus = max(0, self._pool.pages_for(max_tokens) - self._capacity)
        self._pool.reserve(surplus)
        self._capacity += surplus

    def shrink(self) -> None:
        """Give back what was promised and is not held."""
        self._pool.unreserve(self._capacity - self._num_pages)
        self._capacity = self._num_pages

    def share(self, pages: PageArray) -> None:
        """Begin with ``pages``, which others hold too; pages that the table held in their place go back.

        Shared pages are not written: they are full, and a sequence writes behind what it has.
        """
        held = min(len(pages), self._num_pages)
        changed = self._pages[:held] != pages[:held]
        self._pool.retain(pages[:held][changed])
        self._pool.release(self._pages[:held][changed])
        self._put(0, pages[:held])
        added = pages[held:]
        if len(added):
            self._pool.retain(added)
            self._pool.unreserve(min(len(added), self._capacity - self._num_pages))
            self._capacity = max(self._capacity, len(pages))
            self._put(held, added)
            self._num_pages = len(pages)

    def extend_to(self, num_tokens: int) -> None:
        """Hold enough pages for ``num_tokens`` tokens."""
        needed = self._pool.pages_for(num_tokens)
        if needed > self._capacity:
            raise CacheCorruptionError(f"a sequence needs {needed} pages but reserved {self._capacity}")
        if needed > self._num_pages:
            self._put(self._num_pages, self._pool.allocate_reserved(needed - self._num_pages))
            self._num_pages = needed

    def truncate(self, num_tokens: int) -> None:
        """Give back the pages behind ``num_tokens`` tokens; they stay reserved for this sequence."""
        keep = self._pool.pages_for(num_tokens)
        if keep >= self._num_pages:
            return
        surplus = self._pages[keep : self._num_pages].copy()
        self._num_pages = keep
        self._pool.release(surplus)
        self._pool.reserve(len(surplus))

    def keep_path(self, num_tokens: int, places: Sequence[int]) -> list[tuple[int, int]]:
        """Let the tokens at ``places`` follow the first ``num_tokens`` and give back all behind them.

        ``places`` ascend and are at least ``num_tokens``. Returns the (source slot, target slot) pairs whose
        K/V the caller must move, in this order, before anything is written: none where a page holds one token,
        since the pages themselves change places.
        """
        moves: list[tuple[int, int]] = []
        for place, source in enumerate(places, num_tokens):
            if source == place:
                continue
            if self._pool.page_size == 1:
                self._pages[place], self._pages[source] = self._pages[source], self._pages[place]
            else:
                moves.append((int(self._slots[source]), int(self._slots[place])))
        self.truncate(num_tokens + len(places))
        return moves

    def slot_array(self, stop: int) -> SlotArray:
        """Slots of ``[0, stop)`` as a read-only view; valid until the table changes."""
        if stop > self._num_pages * self._pool.page_size:
            raise CacheCorruptionError(f"slots of {stop} tokens asked of a table with {self._num_pages} pages")
        slots = self._slots[:stop]
        slots.flags.writeable = False
        return slots

    def slots(self, start: int, stop: int) -> list[int]:
        """Slot of each token in ``[start, stop)``: page * page_size + offset."""
        slots: list[int] = self.slot_array(stop)[start:].tolist()
        return slots

    def free(self) -> None:
        """Give back all pages and the rest of the reservation."""
        self._pool.unreserve(self._capacity - self._num_pages)
        self._pool.release(self.pages.copy())
        self._num_pages = 0
        self._capacity = 0

    def _put(self, start: int, pages: PageArray) -> None:
        """Write ``pages`` from place ``start`` on; arrays double, so that growing costs nothing on the whole."""
        size, stop = self._pool.page_size, start + len(pages)
        if stop > len(self._pages):
            self._pages = np.resize(self._pages, max(stop, 2 * len(self._pages)))
            self._slots = self._pages if size == 1 else np.resize(self._slots, len(self._pages) * size)
        self._pages[start:stop] = pages
        if size > 1:
            self._slots[start * size : stop * size] = slots_of(pages, size)
