"""Suffix matches agree with a search through the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.drafting.ngram_index import Continuation, NgramIndex


def _by_search(text: list[int], num_tokens: int, *, min_match: int, max_match: int) -> list[Continuation]:
    """Every earlier place of the two longest matching suffixes and what follows it, looped; newest first."""
    found: dict[int, list[int]] = {}  # length -> places behind the match
    taken: set[int] = set()
    for length in range(min(max_match, len(text)), min_match - 1, -1):
        for place in range(len(text) - 1, length - 1, -1):
            if place not in taken and text[place - length : place] == text[-length:]:
                taken.add(place)
                found.setdefault(length, []).append(place)
    return [
        Continuation(tuple(text[place + i % (len(text) - place)] for i in range(num_tokens)), length)
        for length in sorted(found, reverse=True)[:2]
        for place in found[length]
    ]


@given(
    st.lists(st.integers(0, 3), max_size=60), st.integers(1, 3), st.integers(0, 3), st.integers(0, 8), st.integers(1, 9)
)
def test_continuations_are_those_of_the_longest_newest_matches(
    text: list[int], min_match: int, extra: int, num_tokens: int, limit: int
) -> None:
    """Same as the plain search, for every text over a small alphabet."""
    max_match = min_match + extra
    index = NgramIndex(min_match=min_match, max_match=max_match)
    index.extend(text)
    expected = _by_search(text, num_tokens, min_match=min_match, max_match=max_match)
    assert index.continuations(num_tokens, limit) == expected[:limit]


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=10), st.data())
def test_truncating_equals_never_having_seen(text: list[int], more: list[int], data: st.DataObject) -> None:
    """An index that was cut back and went on holds the same as a fresh one."""
    cut = data.draw(st.integers(0, len(text)))
    used, fresh = (NgramIndex(min_match=2, max_match=4) for _ in range(2))
    used.extend(text)
    used.truncate(cut)
    used.extend(more)
    fresh.extend(text[:cut] + more)
    assert (used._token_ids, used._ends) == (fresh._token_ids, fresh._ends)


def test_repetitive_text_costs_bounded_comparisons() -> None:
    """A better match behind 256 newer places of its last tokens is given up."""
    index = NgramIndex(min_match=1, max_match=4)
    index.extend([7, 8, 5, 9])
    index.extend([4, 5] * 300)
    index.extend([7, 8, 5])
    assert index.continuations(1, 1) == [
        Continuation((7,), 1)
    ]  # as after the newest 5, not 9 as after the older 7, 8, 5
