"""Token ids with the hash of every prefix, so that two processes can agree on what both have seen.

The hash guards against lost and reordered messages, not against an attacker: a collision costs
acceptance, never correctness, because drafts are verified anyway.
"""

from collections.abc import Iterable, Sequence

_MASK = (1 << 64) - 1
_EMPTY = 0x9E3779B97F4A7C15


def _extend(prefix_hash: int, token_id: int) -> int:
    """One SplitMix64 finaliser over (hash of the prefix, next id)."""
    x = (prefix_hash ^ ((token_id + 1) * 0xD1B54A32D192ED03)) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def extend_hash(prefix_hash: int, token_ids: Iterable[int]) -> int:
    """Hash of a prefix with ``token_ids`` behind it, from the hash of the prefix."""
    for token_id in token_ids:
        prefix_hash = _extend(prefix_hash, token_id)
    return prefix_hash


class HashedTokens:
    """A growing list of token ids; ``hash_at(n)`` is the 64-bit hash of ``[0, n)``."""

    def __init__(self, token_ids: Iterable[int] = ()) -> None:
        self._ids: list[int] = []
        self._hashes: list[int] = [_EMPTY]  # _hashes[n] covers [0, n)
        self.extend(token_ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> int:
        return self._ids[index]

    @property
    def ids(self) -> Sequence[int]:
        """All ids; callers must not change the list."""
        return self._ids

    def slice(self, start: int, stop: int | None = None) -> tuple[int, ...]:
        """Ids of ``[start, stop)``."""
        return tuple(self._ids[start:stop])

    def hash_at(self, length: int) -> int:
        """Hash of the first ``length`` ids."""
        return self._hashes[length]

    def extend(self, token_ids: Iterable[int]) -> None:
        """Append ids."""
        for token_id in token_ids:
            self._ids.append(token_id)
            self._hashes.append(_extend(self._hashes[-1], token_id))

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` ids."""
        del self._ids[length:]
        del self._hashes[length + 1 :]
