"""Pages are neither lost nor handed out twice, whatever sequences do."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.errors import CacheCorruptionError
from paceline.kvcache.page_pool import PagePool, PageTable


class PoolMachine(RuleBasedStateMachine):
    """Sequences of random sizes grow, roll back and end in any order."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(num_pages=12, page_size=4)
        self.tables: list[tuple[PageTable, int]] = []

    @rule(max_tokens=st.integers(1, 30))
    def admit(self, max_tokens):
        if self.pool.can_reserve(self.pool.pages_for(max_tokens)):
            self.tables.append((PageTable(self.pool, max_tokens), max_tokens))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def grow_or_roll_back(self, data):
        table, max_tokens = data.draw(st.sampled_from(self.tables))
        length = data.draw(st.integers(0, max_tokens))
        table.extend_to(length)
        table.truncate(length)
        assert len(table.pages) == self.pool.pages_for(length)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data):
        index = data.draw(st.integers(0, len(self.tables) - 1))
        self.tables.pop(index)[0].free()

    @invariant()
    def nothing_is_lost(self):
        self.pool.check_integrity()
        pages = [page for table, _ in self.tables for page in table.pages]
        assert len(pages) == len(set(pages)) == self.pool.num_held

    def teardown(self):
        for table, _ in self.tables:
            table.free()
        assert self.pool.num_free == self.pool.num_pages
        assert self.pool.can_reserve(self.pool.num_pages)


TestPool = PoolMachine.TestCase


def test_a_reservation_cannot_be_broken_by_others():
    """What one sequence was promised is not given to another, allocated or not."""
    pool = PagePool(num_pages=4, page_size=4)
    PageTable(pool, max_tokens=12)

    assert not pool.can_reserve(2)
    assert pool.can_reserve(1)
    with pytest.raises(CacheCorruptionError, match="reserved 2 pages"):
        pool.reserve(2)


def test_growing_past_the_reservation_is_an_error_not_a_write():
    """A table never covers a token that was not reserved."""
    table = PageTable(PagePool(num_pages=4, page_size=4), max_tokens=5)
    table.extend_to(8)

    with pytest.raises(CacheCorruptionError, match="needs 3 pages"):
        table.extend_to(9)


def test_slots_follow_the_pages():
    """Token n lies in page n // size at offset n % size, across page borders."""
    pool = PagePool(num_pages=8, page_size=4)
    table = PageTable(pool, max_tokens=12)
    table.extend_to(10)
    expected = [table.pages[n // 4] * 4 + n % 4 for n in range(10)]

    assert table.slots(0, 10) == expected
    assert table.slots(3, 5) == expected[3:5]


def test_releasing_twice_is_noticed():
    """A page that is free cannot be released again."""
    pool = PagePool(num_pages=2, page_size=4)
    pool.reserve(1)
    page = pool.allocate_reserved()
    pool.retain([page])
    pool.release([page])
    pool.release([page])

    with pytest.raises(CacheCorruptionError, match="released twice"):
        pool.release([page])


def test_integrity_check_sees_a_lost_page():
    """A page that nobody holds and that is not free fails the check."""
    pool = PagePool(num_pages=2, page_size=4)
    pool._free.pop()

    with pytest.raises(CacheCorruptionError, match="free 1"):
        pool.check_integrity()
