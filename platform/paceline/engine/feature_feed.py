"""What of a sequence a drafter that needs features can be sent now, and in how large pieces."""

from typing import Protocol

from paceline.core.drafts import FeatureBlock
from paceline.core.model_identity import FeatureFacts
from paceline.engine.sequence import Sequence
from paceline.kvcache.page_pool import PageTable

_ROW_BYTES = 2**20  # of features in one row
_STEP_BYTES = 4 * 2**20  # of features in all rows of a step: what their sending may take of the engine's thread
_FEW_TOKENS = 32  # in a row whatever others have sent: what a round commits does not wait for what others miss
_NUMBER_BYTES = 2  # bfloat16


class FeatureSource(Protocol):
    """Features that the target keeps; see `modeling.stored_features`."""

    def keeps(self, feature: FeatureFacts) -> bool:
        """Whether this feature of every computed token is there."""

    def read(self, feature: FeatureFacts, table: PageTable, start: int, stop: int) -> FeatureBlock:
        """Features of tokens ``[start, stop)`` of a sequence, 1 <= start <= stop <= computed tokens + 1."""


class FeatureAllowance:
    """Bytes of features that a step may still send, over all sessions."""

    def __init__(self) -> None:
        self.left_bytes = _STEP_BYTES

    def renew(self) -> None:
        """A step begins."""
        self.left_bytes = _STEP_BYTES


class FeatureFeed:
    """One feature of one target, as rows of sessions need it."""

    def __init__(self, source: FeatureSource, feature: FeatureFacts, allowance: FeatureAllowance) -> None:
        self._source = source
        self._feature = feature
        self._allowance = allowance
        self._vector_bytes = _NUMBER_BYTES * feature.size

    @property
    def _row_tokens(self) -> int:
        allowed = max(_FEW_TOKENS, self._allowance.left_bytes // self._vector_bytes)
        return max(1, min(_ROW_BYTES // self._vector_bytes, allowed))

    def reach(self, sequence: Sequence, base: int) -> int:
        """Where a row that begins at token ``base`` ends; at or below ``base`` where nothing can be sent now.

        The feature of a token is computed at the token before it, so it is there once that one is computed.
        """
        if sequence.table is None:  # pre-empted: what it had goes out again as it is computed again
            return 0
        return min(len(sequence.tokens), sequence.num_computed + 1, base + self._row_tokens)

    def read(self, sequence: Sequence, start: int, stop: int) -> FeatureBlock | None:
        """Features of tokens ``[start, stop)``, less the first token of the text; None where that leaves none."""
        start = max(start, 1)
        if start >= stop or sequence.table is None:
            return None
        self._allowance.left_bytes -= (stop - start) * self._vector_bytes
        return self._source.read(self._feature, sequence.table, start, stop)
