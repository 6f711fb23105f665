"""A sequence whose length nobody knows reserves more as it grows."""

from paceline.kvcache.page_pool import PagePool, PageTable


def test_growing_reserves_only_what_is_missing() -> None:
    """Room for 9 tokens at page size 4 is 3 pages; growing to less changes nothing; freeing gives all back."""
    pool = PagePool(8, 4)
    table = PageTable(pool, 0)
    assert pool.can_reserve(8)
    table.grow(9)
    assert (pool.can_reserve(5), pool.can_reserve(6)) == (True, False)
    table.grow(3)
    table.extend_to(9)
    table.grow(13)
    assert (pool.can_reserve(4), pool.can_reserve(5)) == (True, False)
    pool.check_integrity()
    table.free()
    assert pool.can_reserve(8)


def test_can_grow_counts_what_others_were_promised() -> None:
    """Of 8 pages one table took 6: another can grow to 2 pages, not to 3, and the first keeps its own."""
    pool = PagePool(8, 4)
    first, second = PageTable(pool, 24), PageTable(pool, 0)
    assert (second.can_grow(8), second.can_grow(9)) == (True, False)
    second.grow(8)
    assert (first.can_grow(24), first.can_grow(25)) == (True, False)
