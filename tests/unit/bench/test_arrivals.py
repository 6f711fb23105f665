"""Tokens of text pieces, where nobody says how many they are."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.bench.arrivals import share_out, shared_arrivals
from paceline.bench.records import Arrival


@given(st.integers(0, 300), st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_no_token_is_lost_or_made_up(total, sizes):
    """Shares are whole, not negative, and sum to the total."""
    shares = share_out(total, sizes)

    assert sum(shares) == total
    assert min(shares) >= 0


def test_longer_pieces_get_more_tokens():
    """In proportion to the characters, after one for each piece."""
    assert share_out(9, [2, 8, 0, 2]) == [2, 5, 0, 2]
    assert share_out(3, [5, 5, 5]) == [1, 1, 1]


def test_more_pieces_than_tokens_spread_the_tokens():
    """A token whose text came in two parts counts once."""
    assert share_out(2, [1, 1, 1, 1]) == [0, 1, 0, 1]


def test_pieces_without_tokens_are_no_arrivals():
    """Times stay with their pieces."""
    assert shared_arrivals(3, [(0.0, 0), (1.0, 4), (2.0, 8)]) == (Arrival(1.0, 1), Arrival(2.0, 2))
