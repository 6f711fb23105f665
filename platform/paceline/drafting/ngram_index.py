"""Where a context's last tokens stood before, kept up to date token by token."""

from collections.abc import Sequence

_MAX_CANDIDATES = 256  # newest earlier places that are compared; bounds the work in repetitive text


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

    def continuation(self, num_tokens: int) -> tuple[int, ...]:
        """Up to ``num_tokens`` tokens that followed the longest earlier match of the sequence's end.

        Of equally long matches the newest counts. A match that overlaps the end repeats itself: text
        that loops goes on looping.
        """
        source = self._best_match_end()
        if source is None:
            return ()
        drafted: list[int] = []
        known = self._token_ids
        for position in range(source, source + num_tokens):
            drafted.append(known[position] if position < len(known) else drafted[position - len(known)])
        return tuple(drafted)

    def _best_match_end(self) -> int | None:
        """Position behind the best earlier match, or None."""
        if len(self._token_ids) < self._min_match:
            return None
        best_end, best_length = None, 0
        earlier = self._ends[self._last_ngram()][-1 - _MAX_CANDIDATES : -1]  # the last one is the end itself
        for end in reversed(earlier):
            length = self._match_length(end)
            if length > best_length:
                best_end, best_length = end, length
            if length == self._max_match:
                break
        return best_end

    def _match_length(self, end: int) -> int:
        """Tokens before ``end`` that equal the sequence's last tokens; from min_match to max_match."""
        known, length = self._token_ids, self._min_match
        while length < min(self._max_match, end) and known[end - length - 1] == known[-length - 1]:
            length += 1
        return length

    def _last_ngram(self) -> tuple[int, ...]:
        return tuple(self._token_ids[-self._min_match :])
