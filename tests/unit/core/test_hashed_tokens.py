"""Prefix hashes agree between processes and follow truncation."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.hashed_tokens import HashedTokens

ids = st.lists(st.integers(0, 2**31 - 1), max_size=30)


def test_hashes_are_the_same_in_every_process():
    """The hash is part of the link's protocol: these values must never change."""
    tokens = HashedTokens((0, 1, 49151))

    assert [tokens.hash_at(n) for n in range(4)] == [
        0x9E3779B97F4A7C15,
        0xD28F049168BDD34C,
        0xD86470D9D34774DC,
        0xB944CB8220DDF6D0,
    ]


@given(ids, ids)
def test_extending_in_any_pieces_gives_the_same_hashes(first, second):
    """A prefix's hash depends on its ids only, not on how they arrived."""
    pieces = HashedTokens(first)
    pieces.extend(second)
    whole = HashedTokens(first + second)

    assert [pieces.hash_at(n) for n in range(len(pieces) + 1)] == [whole.hash_at(n) for n in range(len(whole) + 1)]


@given(ids, st.data())
def test_truncate_is_an_exact_undo(values, data):
    """After truncation, ids and hashes are those of a list that never was longer."""
    keep = data.draw(st.integers(0, len(values)))
    tokens = HashedTokens(values)
    tokens.truncate(keep)
    fresh = HashedTokens(values[:keep])

    assert tokens.slice(0) == fresh.slice(0)
    assert tokens.hash_at(keep) == fresh.hash_at(keep)
    assert len(tokens) == keep


def test_order_and_length_change_the_hash():
    """Swapped, shortened or zero-padded prefixes are told apart."""
    variants = [(1, 2), (2, 1), (1,), (1, 2, 0), (0, 1, 2)]

    assert len({HashedTokens(v).hash_at(len(v)) for v in variants}) == len(variants)
