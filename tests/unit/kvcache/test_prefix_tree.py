"""The prefix tree finds what is known, shares it by reference, and gives up only what nobody uses."""

import random

import numpy as np
import pytest

from paceline.errors import CacheCorruptionError
from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.kvcache.prefix_tree import PrefixTree


def held(pool: PagePool, num_tokens: int) -> PageTable:
    """A table with pages for so many tokens."""
    table = PageTable(pool, num_tokens)
    table.extend_to(num_tokens)
    return table


def published(tree: PrefixTree, pool: PagePool, tokens: list[int], salt: str = "") -> list[int]:
    """Publish tokens as a sequence that ends does; returns the pages that now hold them."""
    table = held(pool, len(tokens))
    match = tree.publish(tokens, salt, table.pages)
    table.free()
    return match.pages.tolist()


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_longest_common_prefix_is_found_in_whole_pages(page_size):
    """Matches end where the texts part, rounded down to a page, in the middle of a published text too."""
    pool = PagePool(200, page_size)
    tree = PrefixTree(pool)
    text = list(range(100, 140))
    pages = published(tree, pool, text)
    for length in range(41):
        match = tree.match([*text[:length], 7, 8, 9, 10, 11], "")

        assert match.pages.tolist() == pages[: length // page_size]
    tree.check_integrity()
    pool.check_holders([tree.all_pages()])


def test_texts_that_part_share_their_beginning_and_nothing_else():
    """A second text adds only its own end; both are found, and each page is held once."""
    pool = PagePool(100, 1)
    tree = PrefixTree(pool)
    first = published(tree, pool, [1, 2, 3, 4, 5])
    second = published(tree, pool, [1, 2, 3, 8, 9, 10])

    assert second[:3] == first[:3]
    assert tree.num_pages == pool.num_held == 8
    assert tree.match([1, 2, 3, 4, 5, 6], "").pages.tolist() == first
    assert tree.match([1, 2, 3, 8, 9, 10], "").pages.tolist() == second


def test_publishing_what_is_known_hands_back_the_known_pages():
    """Two sequences that computed the same prefix end up with one copy of it."""
    pool = PagePool(100, 2)
    tree = PrefixTree(pool)
    first, second = held(pool, 6), held(pool, 6)
    tree.publish([1, 2, 3, 4, 5], "", first.pages)
    match = tree.publish([1, 2, 3, 4, 9, 9], "", second.pages)
    second.share(match.pages)

    assert second.pages.tolist()[:2] == first.pages.tolist()[:2]
    assert tree.num_pages == 3  # [1 2] [3 4] and, after [1 2] [3 4], [9 9]; a page that is not full is not shared
    pool.check_holders([tree.all_pages(), first.pages, second.pages])


def test_tenants_never_share():
    """The same tokens under another salt are not found."""
    pool = PagePool(100, 1)
    tree = PrefixTree(pool)
    published(tree, pool, [1, 2, 3], "a")

    assert len(tree.match([1, 2, 3], "b").pages) == 0
    assert len(tree.match([1, 2, 3], "a").pages) == 3


def test_eviction_takes_the_least_recently_used_first_and_from_its_end():
    """What was used last stays longest; a prefix loses its last pages before its first."""
    pool = PagePool(100, 1)
    tree = PrefixTree(pool)
    old, new = published(tree, pool, [1, 1, 1, 1]), published(tree, pool, [2, 2, 2, 2])
    match = tree.match([1, 1, 1, 1], "")
    tree.lock(match.node)
    tree.unlock(match.node)  # the older one was used again

    assert tree.evict(3) == 3
    assert tree.match([2, 2, 2, 2], "").pages.tolist() == new[:1]
    assert tree.match([1, 1, 1, 1], "").pages.tolist() == old
    assert tree.evict(3) == 3
    assert len(tree.match([2, 2, 2, 2], "").pages) == 0
    assert tree.match([1, 1, 1, 1], "").pages.tolist() == old[:2]
    assert (tree.num_pages, pool.num_held) == (2, 2)


def test_what_is_locked_stays_with_all_that_comes_before_it():
    """Eviction frees what hangs beside a locked prefix and nothing of the prefix itself."""
    pool = PagePool(100, 1)
    tree = PrefixTree(pool)
    kept = published(tree, pool, [1, 2, 3, 4])
    published(tree, pool, [1, 2, 9, 9])
    match = tree.match([1, 2, 3, 7], "")
    tree.lock(match.node)

    assert tree.num_evictable == 3  # [4] and [9 9]
    assert tree.evict(100) == 3
    assert tree.match([1, 2, 3, 4], "").pages.tolist() == kept[:3]
    tree.unlock(match.node)
    assert tree.evict(100) == 3
    assert pool.num_free == 100
    with pytest.raises(CacheCorruptionError, match="more often"):
        tree.unlock(match.node)


def test_a_lock_survives_a_split_of_its_prefix():
    """A text that parts from a locked one in its middle leaves the locked one whole, and unlocking frees all of it."""
    pool = PagePool(100, 1)
    tree = PrefixTree(pool)
    table = held(pool, 6)
    match = tree.publish([1, 2, 3, 4, 5, 6], "", table.pages)
    tree.lock(match.node)
    published(tree, pool, [1, 2, 3, 7])
    tree.check_integrity()

    assert tree.evict(100) == 1
    assert tree.match([1, 2, 3, 4, 5, 6], "").pages.tolist() == table.pages.tolist()
    tree.unlock(match.node)
    table.free()
    assert tree.evict(100) == 6
    assert pool.num_free == 100


def test_a_root_that_is_in_use_is_not_lost_when_its_texts_are_evicted():
    """A sequence that found nothing goes on publishing under its salt, whatever came and went meanwhile."""
    pool = PagePool(100, 1)
    tree = PrefixTree(pool)
    early = tree.match([1, 2, 3], "a")
    tree.lock(early.node)
    published(tree, pool, [1, 2, 3], "a")
    late = tree.match([9], "a")
    tree.lock(late.node)
    tree.clear()
    pages = published(tree, pool, [1, 2, 3], "a")
    tree.unlock(early.node)
    tree.unlock(late.node)

    assert tree.match([1, 2, 3], "a").pages.tolist() == pages
    tree.clear()
    assert (len(tree._roots), pool.num_free) == (0, 100)


def test_a_salt_that_nobody_uses_is_forgotten():
    """Neither misses nor evicted texts leave anything behind."""
    pool = PagePool(100, 1)
    tree = PrefixTree(pool)
    for number in range(5):
        match = tree.match([1, 2], f"missed {number}")
        tree.lock(match.node)
        tree.unlock(match.node)
        tree.match([1, 2], f"looked up {number}")
        published(tree, pool, [1, 2], f"evicted {number}")
    tree.clear()

    assert not tree._roots
    assert pool.num_free == 100


@pytest.mark.parametrize("page_size", [1, 3])
def test_whatever_happens_the_tree_knows_what_a_plain_list_of_texts_would(page_size):
    """Random texts, locks and evictions: counts add up, locked texts stay, and each slot holds its own prefix."""
    rng = random.Random(page_size)
    pool = PagePool(120, page_size)
    tree = PrefixTree(pool)
    written: dict[int, tuple[int, ...]] = {}  # slot -> the prefix that was computed into it
    users: list[tuple[PageTable, list[int], object]] = []
    for round_index in range(1500):
        text = [rng.randrange(2) for _ in range(rng.randrange(1, 40))]
        match = tree.match(text, "")
        tree.lock(match.node)
        table = PageTable(pool)
        table.share(match.pages)
        known = len(match.pages) * page_size
        missing = pool.pages_for(len(text)) - table.num_pages - pool.num_available
        if missing > 0:
            tree.evict(missing)
        if not table.can_grow(len(text)):
            table.free()
            tree.unlock(match.node)
            while users and (rng.random() < 0.7 or len(users) > 3):
                ended, _, node = users.pop(rng.randrange(len(users)))
                ended.free()
                tree.unlock(node)
            continue
        table.grow(len(text))
        table.extend_to(len(text))
        slots = table.slots(0, len(text))
        assert all(written[slots[i]] == tuple(text[: i + 1]) for i in range(known))
        for place in range(known, len(text)):
            written[slots[place]] = tuple(text[: place + 1])
        outcome = tree.publish(text, "", table.pages)
        tree.lock(outcome.node)
        tree.unlock(match.node)
        table.share(outcome.pages)
        users.append((table, text, outcome.node))
        pool.check_holders([tree.all_pages(), *(user.pages for user, _, _ in users)])
        pool.check_integrity()
        if round_index % 10 == 0:
            tree.check_integrity()
            for _, tokens, pages in tree.prefixes():
                slots = (np.array(pages)[:, None] * page_size + np.arange(page_size)).reshape(-1).tolist()
                assert all(written[slot] == tuple(tokens[: i + 1]) for i, slot in enumerate(slots))
    for table, _, node in users:
        table.free()
        tree.unlock(node)
    tree.clear()
    assert pool.num_free == pool.num_pages
