"""A drafter that measures another one, so that its cost is not what it says of itself."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from paceline.config.schema import DrafterConfig
from paceline.core.drafts import DraftOpening, DraftProposal, DraftReply, DraftRequest
from paceline.drafting.host import DrafterHost
from paceline.drafting.registry import build_drafter

T = TypeVar("T")


class TimedDrafter:
    """Implements `Drafter` over any method; ``draft_ms`` of a proposal is the time of all calls since the last one.

    Sessions are not told apart: with one answer at a time, the sum over its rounds is what drafting cost it. Made
    like a drafter from outside, so that the engine takes it in as it takes in any other.
    """

    def __init__(self, *, section: Mapping[str, Any], host: DrafterHost) -> None:
        """Measure the drafter of a configuration's ``section``."""
        built = build_drafter("drafter", DrafterConfig.model_validate(section), host)
        self._inner = built.drafter
        self.vocabulary = built.facts.vocabulary
        self.context_length = built.facts.context_length
        self.weights_version = built.facts.weights_version
        self.feature = built.facts.feature
        self._spent_s = 0.0

    @property
    def method(self) -> str:
        """Method of the drafter inside."""
        return self._inner.method

    @property
    def live(self) -> bool:
        """Whether the drafter inside is live."""
        return self._inner.live

    @property
    def detail(self) -> str:
        """Why it is not."""
        return self._inner.detail

    @property
    def num_pending(self) -> int:
        """Requests without a reply."""
        return self._inner.num_pending

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known."""
        self._timed(lambda: self._inner.open(openings))

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Ask for proposals."""
        self._timed(lambda: self._inner.request(rows))

    def collect(self, timeout_s: float) -> list[DraftReply]:
        """Replies that are ready; the first proposal among them carries the time."""
        replies = self._timed(lambda: list(self._inner.collect(timeout_s)))
        for place, reply in enumerate(replies):
            if isinstance(reply, DraftProposal) and len(reply.tree):
                replies[place] = replace(reply, draft_ms=self._spent_s * 1e3)
                self._spent_s = 0.0
        return replies

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions."""
        self._timed(lambda: self._inner.close(sessions))

    def _timed(self, call: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return call()
        finally:
            self._spent_s += time.perf_counter() - started
