"""Pages are neither lost nor handed out twice, whatever sequences do."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.errors import CacheCorruptionError
from paceline.kvcache.page_pool import PagePool, PageTable


class PoolMachine(RuleBasedStateMachine):
    """Sequences of random sizes grow, roll back, keep paths, share and end in any order."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(num_pages=12, page_size=4)
        self.tables: list[tuple[PageTable, int]] = []

    @rule(max_tokens=st.integers(1, 30))
    def admit(self, max_tokens):
        if self.pool.can_reserve(self.pool.pages_for(max_tokens)):
            self.tables.append((PageTable(self.pool, max_tokens), max_tokens))

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), max_tokens=st.integers(1, 30))
    def admit_beside_another(self, data, max_tokens):
        other, _ = data.draw(st.sampled_from(self.tables))
        shared = other.pages[: max_tokens // 4].copy()
        if self.pool.can_reserve(self.pool.pages_for(max_tokens) - len(shared)):
            table = PageTable(self.pool)
            table.share(shared)
            table.grow(max_tokens)
            self.tables.append((table, max_tokens))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def grow_or_roll_back(self, data):
        table, max_tokens = data.draw(st.sampled_from(self.tables))
        length = data.draw(st.integers(table.num_pages * 4 - 3, max(max_tokens, table.num_pages * 4)))
        table.extend_to(min(length, max_tokens))
        if all(self.pool._references[page] == 1 for page in table.pages):
            table.truncate(length)
            assert table.num_pages == self.pool.pages_for(length) <= table.capacity

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data):
        index = data.draw(st.integers(0, len(self.tables) - 1))
        self.tables.pop(index)[0].free()

    @invariant()
    def nothing_is_lost(self):
        self.pool.check_integrity()
        self.pool.check_holders(table.pages for table, _ in self.tables)

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


@pytest.mark.parametrize("page_size", [1, 4])
def test_slots_follow_the_pages(page_size):
    """Token n lies in page n // size at offset n % size, across page borders, also after the arrays have grown."""
    pool = PagePool(num_pages=100, page_size=page_size)
    table = PageTable(pool)
    for length in (10, 70):
        table.grow(length)
        table.extend_to(length)
        expected = [table.pages[n // page_size] * page_size + n % page_size for n in range(length)]

        assert table.slots(0, length) == expected
        assert table.slots(3, 5) == expected[3:5]
        assert table.slot_array(length).tolist() == expected
        assert table.slot_array(length).dtype == np.int32


def test_a_slot_behind_the_pages_is_an_error_and_the_view_is_read_only():
    """Nobody reads or writes a slot that the table does not cover."""
    table = PageTable(PagePool(num_pages=4, page_size=4), max_tokens=8)
    table.extend_to(5)

    with pytest.raises(CacheCorruptionError, match="9 tokens"):
        table.slot_array(9)
    with pytest.raises(ValueError, match="read-only"):
        table.slot_array(8)[0] = 1


def test_releasing_twice_is_noticed():
    """A page that is free cannot be released again."""
    pool = PagePool(num_pages=2, page_size=4)
    pool.reserve(1)
    pages = pool.allocate_reserved(1)
    pool.retain(pages)
    pool.release(pages)
    pool.release(pages)

    with pytest.raises(CacheCorruptionError, match="released twice"):
        pool.release(pages)


def test_integrity_check_sees_a_lost_page():
    """A page that nobody holds and that is not free fails the check."""
    pool = PagePool(num_pages=2, page_size=4)
    pool._num_free -= 1

    with pytest.raises(CacheCorruptionError, match="free 1"):
        pool.check_integrity()


def test_integrity_check_sees_a_holder_that_is_not_counted():
    """Two tables that hold a page which counts one holder fail the check, and so does a forgotten one."""
    pool = PagePool(num_pages=4, page_size=4)
    table = PageTable(pool, 8)
    table.extend_to(8)
    pool.check_holders([table.pages])

    with pytest.raises(CacheCorruptionError, match="2 pages have other holders"):
        pool.check_holders([table.pages, table.pages])
    with pytest.raises(CacheCorruptionError, match="has 0 and counts 1"):
        pool.check_holders([])


def test_shared_pages_replace_own_ones_and_live_as_long_as_anyone_holds_them():
    """A table that lets go of a shared page frees nothing; its own copies went back when it began to share."""
    pool = PagePool(num_pages=8, page_size=4)
    first, second = PageTable(pool, 12), PageTable(pool, 12)
    first.extend_to(12)
    second.extend_to(12)
    second.share(first.pages[:2])

    assert second.pages.tolist() == [*first.pages[:2], second.pages[2]]
    assert pool.num_free == 4
    first.free()
    assert pool.num_free == 5
    pool.check_holders([second.pages])


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_hook_hears_of_every_freed_slot_once_and_not_before_it_may(page_size):
    """Slots are reported when asked for, or just before a page is handed out again; never while someone holds them."""
    pool = PagePool(num_pages=4, page_size=page_size)
    heard: list[int] = []
    pool.on_free = lambda slots: heard.extend(slots.tolist())
    table = PageTable(pool, 3 * page_size)
    table.extend_to(3 * page_size)
    freed = table.slots(page_size, 3 * page_size)
    table.truncate(page_size)
    assert heard == []
    table.extend_to(2 * page_size)
    assert sorted(heard) == sorted(freed)
    heard.clear()
    table.free()
    pool.report_freed()
    pool.report_freed()
    assert len(heard) == 2 * page_size
