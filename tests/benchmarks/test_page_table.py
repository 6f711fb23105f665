"""Commit of a round in the page table: look-ahead, the accepted path, what goes back."""

import pytest

from paceline.kvcache.page_pool import PagePool, PageTable


@pytest.mark.parametrize("page_size", [1, 16])
def test_keep_path(benchmark, page_size):
    """A tree of 16 nodes of which four on one path stay, behind 1000 tokens; then the same again."""
    pool = PagePool(4096 // page_size, page_size)
    table = PageTable(pool, 2048)
    table.extend_to(1000)

    def commit():
        table.extend_to(1016)
        moves = table.keep_path(1000, (1002, 1005, 1009, 1014))
        table.truncate(1000)
        return moves

    moves = benchmark(commit)
    assert len(moves) == (0 if page_size == 1 else 4)
    table.free()
    pool.check_integrity()
