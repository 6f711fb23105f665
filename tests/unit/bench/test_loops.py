"""The rule that sets looping answers apart."""

import pytest

from paceline.bench.loops import is_looping

PHRASE = "the river runs past the old mill and"  # eight words


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("", False),
        ("short", False),
        (f"{PHRASE} {PHRASE}", False),  # two times
        (f"{PHRASE} {PHRASE} {PHRASE}", True),
        (f"{PHRASE}\n{PHRASE}  x {PHRASE}", True),  # any white space, anything between
        (" ".join([PHRASE.rsplit(" ", 1)[0]] * 2), False),
        (" ".join(["word"] * 9), False),  # two overlapping places
        (" ".join(["word"] * 10), True),  # three
    ],
)
def test_eight_words_three_times_are_a_loop(text, loops):
    """Any eight words in a row that stand three times, overlapping or not."""
    assert is_looping(text) is loops
