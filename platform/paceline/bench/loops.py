"""Tells looping answers from others: they are easy to draft and flatter every figure."""

from collections import Counter

LOOP_WORDS = 8
LOOP_TIMES = 3


def is_looping(text: str) -> bool:
    """Whether any `LOOP_WORDS` words in a row stand `LOOP_TIMES` times in the text, overlaps included."""
    words = text.split()
    grams = Counter(tuple(words[start : start + LOOP_WORDS]) for start in range(len(words) - LOOP_WORDS + 1))
    return max(grams.values(), default=0) >= LOOP_TIMES
