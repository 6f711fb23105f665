"""Where a context's last tokens stood before, kept up to date token by token."""

from collections.abc import Sequence
from typing import NamedTuple

_MAX_CANDIDATES = 256  # newest earlier places that are compared; bounds the work in repetitive text


class Continuation(NamedTuple):
    """What stood behind an earlier match of the sequence's end."""

    token_ids: tuple[int, ...]
    match_length: int  # tokens


class NgramIndex:
    """Earlier places of every run of ``min_match`` tokens in one growing sequence.

    Longer matches are found by comparing backwards from those places, so that memory grows by one entry
    a token and not by one per token and match length.
    """

    def __init__(self, *, min_match: int, max_match: int) -> None:
        self._min_match = min_match
        self._max_match = max_match
        self._token_ids: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}  # n-gram -> positions behind it, ascending

    def __len__(self) -> int:
        return len(self._token_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens."""
        for token_id in token_ids:
            self._token_ids.append(token_id)
            if len(self._token_ids) >= self._min_match:
                self._ends.setdefault(self._last_ngram(), []).append(len(self._token_ids))

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` tokens."""
        while len(self._token_ids) > length:
            if len(self._token_ids) >= self._min_match:
                ngram = self._last_ngram()
                ends = self._ends[ngram]
                ends.pop()
                if not ends:
                    del self._ends[ngram]
            self._token_ids.pop()

    def continuations(self, num_tokens: int, limit: int) -> list[Continuation]:
        """Up to ``limit`` runs of ``num_tokens`` tokens that followed earlier matches of the sequence's end.

        Those of the longest match come first, then those of the next longest; of equally long ones the newest
        first. A match that overlaps the end repeats itself: text that loops goes on looping.
        """
        return [Continuation(self._after(place, num_tokens), length) for length, place in self._places(limit)]

    def _after(self, place: int, num_tokens: int) -> tuple[int, ...]:
        followed: list[int] = []
        known = self._token_ids
        for position in range(place, place + num_tokens):
            followed.append(known[position] if position < len(known) else followed[position - len(known)])
        return tuple(followed)

    def _places(self, limit: int) -> list[tuple[int, int]]:
        """(length, position behind it) of the matches to go on from."""
        if len(self._token_ids) < self._min_match:
            return []
        places: list[tuple[int, int]] = []
        num_longest = 0
        earlier = self._ends[self._last_ngram()][-1 - _MAX_CANDIDATES : -1]  # the last one is the end itself
        for end in reversed(earlier):
            length = self._match_length(end)
            places.append((length, end))
            num_longest += length == self._max_match
            if num_longest == limit:
                break
        lengths = sorted({length for length, _ in places}, reverse=True)[:2]
        return [place for wanted in lengths for place in places if place[0] == wanted][:limit]

    def _match_length(self, end: int) -> int:
        """Tokens before ``end`` that equal the sequence's last tokens; from min_match to max_match."""
        known, length = self._token_ids, self._min_match
        while length < min(self._max_match, end) and known[end - length - 1] == known[-length - 1]:
            length += 1
        return length

    def _last_ngram(self) -> tuple[int, ...]:
        return tuple(self._token_ids[-self._min_match :])
