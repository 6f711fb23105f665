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
    nothing will be answered any more. Work that waits for ``step_timeout_s`` without progress makes
    `check_health` fail; until the first step has ended it is ``first_step_timeout_s``.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        on_error: OnError,
        on_end: OnEnd,
        step_timeout_s: float = 60.0,
        first_step_timeout_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._on_error = on_error
        self._on_end = on_end
        self._step_timeout_s = step_timeout_s
        self._first_step_timeout_s = first_step_timeout_s
        self._clock = clock
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._last_progress = clock()
        self._rows_computed = 0  # at the last look
        self._doing = ("", 0.0)  # what the thread is in the middle of, and since when
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

    @property
    def stalled_s(self) -> float:
        """Time since work that waits has last got on, in seconds; 0 where none waits."""
        waits = self._busy or bool(self._doing[0]) or not self._inbox.empty()
        return self._clock() - self._last_progress if waits else 0.0

    def check_health(self) -> None:
        """Raise EngineFailedError if the loop died, keeps failing, or works without progress."""
        if not self._thread.is_alive():
            raise EngineFailedError("its thread is gone")
        if self._corruption:
            raise self._corruption
        if self._failed_steps >= _MAX_FAILED_STEPS:
            raise EngineFailedError(f"{self._failed_steps} steps in a row raised")
        self._check_progress()

    def _check_progress(self) -> None:
        """A thread that hangs cannot say so; a loop that turns without computing anything does not know it."""
        limit_s = self._step_timeout_s if self._rows_computed else self._first_step_timeout_s
        stalled_s, (doing, since) = self.stalled_s, self._doing
        if stalled_s <= limit_s:
            return
        if doing and self._clock() - since > limit_s:
            raise EngineFailedError(f"{doing} has not ended for {self._clock() - since:.0f} s")
        raise EngineFailedError(f"work waits, but no step has computed anything for {stalled_s:.0f} s")

    def _note_progress(self) -> None:
        """Progress is a computed row, or nothing to do."""
        rows_computed = self._engine.rows_computed
        if rows_computed != self._rows_computed or not self._busy:
            self._last_progress = self._clock()
        self._rows_computed = rows_computed

    def _run(self) -> None:
        error = EngineFailedError("the replica is shutting down")
        try:
            while self._drain_inbox():
                was_busy, self._busy = self._busy, self._engine.has_work
                if self._busy:
                    self._step()
                elif was_busy:
                    self._check_idle()
                self._note_progress()
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
            self._doing = ("a message to the engine", self._clock())
            try:
                action()
            except Exception as error:  # one message must not end the thread for all
                logger.exception("a message to the engine failed")
                self._note(error)
            self._doing = ("", 0.0)
            block = False

    def _add(self, request: GenerationRequest) -> None:
        try:
            self._engine.add(request)
        except Exception as error:  # whatever it is, the one who sent the request waits for it
            if not isinstance(error, PacelineError):
                logger.exception("request %s could not be queued", request.key)
            self._on_error([request.key], _known(error))

    def _step(self) -> None:
        self._doing = ("a step", self._clock())
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
        finally:
            self._doing = ("", 0.0)

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
