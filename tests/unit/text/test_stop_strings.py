"""Stop strings are found wherever the text was cut, and hold back no more than they must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.text.stop_strings import StopStrings

TEXT = "The quick brown fox"


def _run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopStrings(stops)
    shown = ""
    for piece in pieces:
        text, stop = matcher.push(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + matcher.flush(), None


def _blocks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _by_hand(stops: list[str], text: str) -> tuple[str, str | None]:
    """Character by character, over all text so far: the definition."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.parametrize("size", range(1, 7))
def test_a_stop_string_over_several_pieces_is_found(size: int) -> None:
    """No part of it is shown, whatever the size of the pieces."""
    assert _run(["own fox"], _blocks(TEXT, size)) == ("The quick br", "own fox")


def test_text_that_cannot_begin_a_stop_string_is_never_held() -> None:
    """With stop 'ZZZ', text without a Z is shown at once."""
    matcher = StopStrings(["ZZZ"])
    assert [matcher.push(piece).text for piece in _blocks(TEXT, 3)] == _blocks(TEXT, 3)


def test_exactly_the_longest_possible_beginning_is_held() -> None:
    """Of 'xaaab' with stop 'aab!' only 'aab' waits; when it fails, it is shown."""
    matcher = StopStrings(["aab!"])
    assert matcher.push("xaaab").text == "xa"
    assert matcher.push("?").text == "aab?"


def test_flush_shows_what_was_held_once() -> None:
    """The beginning of a stop string that never came belongs to the text."""
    matcher = StopStrings(["fox!"])
    assert matcher.push("a fox").text == "a "
    assert matcher.flush() == "fox"
    assert matcher.flush() == ""


def test_nothing_is_shown_after_a_match() -> None:
    """Text behind the stop string is dropped, in the same piece and in later ones."""
    matcher = StopStrings(["x"])
    assert matcher.push("axb") == ("a", "x")
    assert matcher.push("c") == ("", "x")
    assert matcher.flush() == ""


def test_the_first_complete_match_wins() -> None:
    """'bc' is complete before 'abcd'; of two that end together the longer one counts."""
    assert _run(["abcd", "bc"], ["xabcd"]) == ("xa", "bc")
    assert _run(["bc", "abc"], ["xabc"]) == ("x", "abc")


@given(
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
    st.lists(st.text("abc", max_size=6), max_size=10),
)
def test_the_result_does_not_depend_on_the_cuts(stops: list[str], pieces: list[str]) -> None:
    """Any cutting gives what the definition gives."""
    assert _run(stops, pieces) == _by_hand(stops, "".join(pieces))
