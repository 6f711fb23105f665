"""Runs an engine on a thread of its own; the rest of the process talks to it through an inbox."""

import logging
import queue
import threading
import time
from collections.abc import Callable

from paceline.core.generation import GenerationRequest
from paceline.engine.engine import Engine, OnError
from paceline.errors import CacheCorruptionError, EngineFailedError, PacelineError

logger = logging.getLogger(__name__)

_IDLE_POLL_S = 0.5
_MAX_FAILED_STEPS = 3  # in a row, before the replica calls itself unhealthy
_JOIN_S = 30.0

OnEnd = Callable[[PacelineError], None]


class EngineThread:
    """Owns the engine's loop. `submit`, `abort` and `call` may be called from any thread and never block.

    ``on_error`` hears of requests that were refused; ``on_end`` hears, once, that the thread is over and
    nothing will be answered any more.
    """

    def __init__(self, engine: Engine, *, on_error: OnError, on_end: OnEnd, stall_after_s: float = 60.0) -> None:
        self._engine = engine
        self._on_error = on_error
        self._on_end = on_end
        self._stall_after_s = stall_after_s
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._last_progress = time.monotonic()
        self._busy = False
        self._failed_steps = 0
        self._corruption: CacheCorruptionError | None = None
        self._thread = threading.Thread(target=self._run, name="paceline-engine", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; a refusal is reported through ``on_error``."""
        self._inbox.put(lambda: self._add(request))

    def abort(self, key: str) -> None:
        """End a request before the next step."""
        self._inbox.put(lambda: self._engine.abort(key))

    def call(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the engine's thread, between steps."""
        self._inbox.put(action)

    def close(self) -> None:
        """End all requests and the loop; returns when the thread is gone, or stuck for long."""
        self._inbox.put(None)
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            logger.warning("the engine's thread did not end within %s s", _JOIN_S)

    def check_health(self) -> None:
        """Raise EngineFailedError if the loop died, keeps failing, or works without progress."""
        if not self._thread.is_alive():
            raise EngineFailedError("its thread is gone")
        if self._corruption:
            raise self._corruption
        if self._failed_steps >= _MAX_FAILED_STEPS:
            raise EngineFailedError(f"{self._failed_steps} steps in a row raised")
        stalled_s = time.monotonic() - self._last_progress
        if self._busy and stalled_s > self._stall_after_s:
            raise EngineFailedError(f"no step finished for {stalled_s:.0f} s while requests wait")

    def _run(self) -> None:
        error = EngineFailedError("the replica is shutting down")
        try:
            while self._drain_inbox():
                was_busy, self._busy = self._busy, self._engine.has_work
                if self._busy:
                    self._step()
                elif was_busy:
                    self._check_idle()
                self._last_progress = time.monotonic()
            self._engine.fail_all(error)
        except Exception as fault:  # the thread's border: whoever waits must hear of it
            logger.exception("the engine's thread ends")
            error = EngineFailedError(type(fault).__name__)
        finally:
            self._on_end(error)

    def _drain_inbox(self) -> bool:
        """Run what has arrived; wait a little if there is nothing else to do. False ends the loop."""
        block = not self._engine.has_work
        while True:
            try:
                action = self._inbox.get(block=block, timeout=_IDLE_POLL_S if block else None)
            except queue.Empty:
                return True
            if action is None:
                return False
            try:
                action()
            except Exception as error:  # one message must not end the thread for all
                logger.exception("a message to the engine failed")
                self._note(error)
            block = False

    def _add(self, request: GenerationRequest) -> None:
        try:
            self._engine.add(request)
        except Exception as error:  # whatever it is, the one who sent the request waits for it
            if not isinstance(error, PacelineError):
                logger.exception("request %s could not be queued", request.key)
            self._on_error([request.key], _known(error))

    def _step(self) -> None:
        try:
            self._engine.step()
            self._failed_steps = 0
        except Exception as error:  # a failed step ends its requests, not the replica
            self._failed_steps += 1
            logger.exception("engine step failed")
            self._note(error)
            try:
                self._engine.fail_all(_known(error))
            except Exception as second:
                logger.exception("a failed step left more behind than could be cleaned up")
                self._note(second)

    def _check_idle(self) -> None:
        """State invariants are checked in production, whenever the last request has ended."""
        try:
            self._engine.check_integrity()
        except CacheCorruptionError as error:
            logger.exception("the idle engine failed its integrity check")
            self._note(error)

    def _note(self, error: Exception) -> None:
        """Remember damage: a replica whose pages are in disorder is not healthy again."""
        if isinstance(error, CacheCorruptionError):
            self._corruption = error


def _known(error: Exception) -> PacelineError:
    return error if isinstance(error, PacelineError) else EngineFailedError(type(error).__name__)
