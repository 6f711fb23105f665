"""Pages of the KV cache: who holds which, and what is promised to whom."""

from collections.abc import Iterable, Sequence

from paceline.errors import CacheCorruptionError


class PagePool:
    """Hands out fixed-size pages with reference counts; knows nothing of tensors.

    Admission *reserves* all pages that a sequence can ever need, so that allocating inside a
    reservation cannot fail. Ask (`can_reserve`), then act (`reserve`).
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size  # tokens
        self._free: list[int] = list(range(num_pages - 1, -1, -1))
        self._references: list[int] = [0] * num_pages
        self._reserved = 0  # pages promised and not yet allocated

    @property
    def num_free(self) -> int:
        """Pages that nobody holds; some may be promised."""
        return len(self._free)

    @property
    def num_reserved(self) -> int:
        """Pages that are promised and not allocated."""
        return self._reserved

    @property
    def num_held(self) -> int:
        """Pages with at least one holder."""
        return sum(1 for count in self._references if count)

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold ``num_tokens`` tokens."""
        return -(-num_tokens // self.page_size)

    def can_reserve(self, num_pages: int) -> bool:
        """Whether ``num_pages`` more pages can be promised."""
        return self._reserved + num_pages <= len(self._free)

    def reserve(self, num_pages: int) -> None:
        """Promise pages; the caller has asked `can_reserve`."""
        if not self.can_reserve(num_pages):
            raise CacheCorruptionError(f"reserved {num_pages} pages with {len(self._free) - self._reserved} left")
        self._reserved += num_pages

    def unreserve(self, num_pages: int) -> None:
        """Take back a promise that is not needed any more."""
        self._reserved -= num_pages

    def allocate_reserved(self) -> int:
        """Turn one promised page into a held one."""
        self._reserved -= 1
        page = self._free.pop()
        self._references[page] = 1
        return page

    def retain(self, pages: Iterable[int]) -> None:
        """Add a holder to each page."""
        for page in pages:
            self._references[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Drop a holder of each page; a page without holders is free at once."""
        for page in pages:
            if self._references[page] <= 0:
                raise CacheCorruptionError(f"page {page} was released twice")
            self._references[page] -= 1
            if not self._references[page]:
                self._free.append(page)

    def check_integrity(self) -> None:
        """Raise if a page was lost, duplicated or over-promised."""
        if len(self._free) != len(set(self._free)):
            raise CacheCorruptionError("a page is free twice")
        if self.num_free + self.num_held != self.num_pages:
            raise CacheCorruptionError(f"free {self.num_free} + held {self.num_held} != total {self.num_pages}")
        if not 0 <= self._reserved <= self.num_free:
            raise CacheCorruptionError(f"reserved {self._reserved} of {self.num_free} free pages")


class PageTable:
    """Pages of one sequence, in order, and its share of the reservation.

    ``[0, num_tokens)`` of the sequence lie in `pages`; slots beyond are rolled back by `truncate`.
    """

    def __init__(self, pool: PagePool, max_tokens: int) -> None:
        """Reserve room for ``max_tokens`` tokens; the caller has asked ``pool.can_reserve``."""
        self._pool = pool
        self._capacity = pool.pages_for(max_tokens)
        self.pages: list[int] = []
        pool.reserve(self._capacity)

    def can_grow(self, max_tokens: int) -> bool:
        """Whether room for ``max_tokens`` tokens in all is reserved or could be."""
        return self._pool.can_reserve(self._pool.pages_for(max_tokens) - self._capacity)

    def grow(self, max_tokens: int) -> None:
        """Reserve room for ``max_tokens`` tokens in all; the caller has asked `can_grow`."""
        surplus = max(0, self._pool.pages_for(max_tokens) - self._capacity)
        self._pool.reserve(surplus)
        self._capacity += surplus

    def extend_to(self, num_tokens: int) -> None:
        """Hold enough pages for ``num_tokens`` tokens."""
        needed = self._pool.pages_for(num_tokens)
        if needed > self._capacity:
            raise CacheCorruptionError(f"a sequence needs {needed} pages but reserved {self._capacity}")
        while len(self.pages) < needed:
            self.pages.append(self._pool.allocate_reserved())

    def truncate(self, num_tokens: int) -> None:
        """Give back the pages behind ``num_tokens`` tokens; they stay reserved for this sequence."""
        keep = self._pool.pages_for(num_tokens)
        surplus = self.pages[keep:]
        del self.pages[keep:]
        self._pool.release(surplus)
        self._pool.reserve(len(surplus))

    def keep_path(self, num_tokens: int, places: Sequence[int]) -> list[tuple[int, int]]:
        """Let the tokens at ``places`` follow the first ``num_tokens`` and give back all behind them.

        ``places`` ascend and are at least ``num_tokens``. Returns the (source slot, target slot) pairs whose
        K/V the caller must move, in this order, before anything is written: none where a page holds one token,
        since the pages themselves change places.
        """
        size = self._pool.page_size
        wanted = range(num_tokens, num_tokens + len(places))
        if size == 1:
            for place, source in zip(wanted, places, strict=True):
                self.pages[place], self.pages[source] = self.pages[source], self.pages[place]
            moves: list[tuple[int, int]] = []
        else:
            slots = self.slots(0, max(places, default=-1) + 1)
            moves = [(slots[s], slots[t]) for t, s in zip(wanted, places, strict=True) if s != t]
        self.truncate(num_tokens + len(places))
        return moves

    def slots(self, start: int, stop: int) -> list[int]:
        """Slot of each token in ``[start, stop)``: page * page_size + offset."""
        size = self._pool.page_size
        return [self.pages[position // size] * size + position % size for position in range(start, stop)]

    def free(self) -> None:
        """Give back all pages and the rest of the reservation."""
        self._pool.unreserve(self._capacity - len(self.pages))
        self._pool.release(self.pages)
        self.pages = []
        self._capacity = 0
