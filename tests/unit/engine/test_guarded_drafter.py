"""Whatever a drafter raises, the request goes on."""

import pytest

from engine_harness import Harness
from paceline.core.drafts import DraftBudget, DraftRefusal, DraftRequest
from paceline.engine.guarded_drafter import GuardedDrafter
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from script_drafters import ScriptDrafter, oracle
from text_features import FEATURE, RecordingDrafter
from toy_target import ToyRunner, hashed_law

LAW = hashed_law(12, scale=2.0)
OPTIONS = {"temperature": 1.0, "max_tokens": 24, "seed": 3}


class Exploding(ScriptDrafter):
    """Raises in one of its methods, from the n-th call on."""

    def __init__(self, script, method, after):
        super().__init__(script)
        self._method, self._left = method, after

    def __getattribute__(self, name):
        if name in ("open", "request", "collect", "close") and name == super().__getattribute__("_method"):
            self._left -= 1
            if self._left < 0:
                raise ValueError("planted")
        return super().__getattribute__(name)


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("method", ["open", "request", "collect", "close"])
def test_an_exception_anywhere_costs_drafts_only(method, after):
    """The answer is the plain one, and nothing is left behind."""
    plain = Harness(ToyRunner(LAW, 12))
    plain.submit("r/1", (1, 2, 3), **OPTIONS)
    plain.run()
    drafter = Exploding(oracle(plain.ids("r/1"), 3), method, after)
    harness = Harness(ToyRunner(LAW, 12), {"script": drafter})
    harness.submit("r/1", (1, 2, 3), drafter="script", **OPTIONS)
    harness.run()

    assert harness.ids("r/1") == plain.ids("r/1")
    if method != "close" and not after:
        assert harness.counted("DRAFTER_FAILURES", group="script") >= 1


def test_properties_that_raise_are_guarded_too():
    """A drafter that cannot even say whether it lives is not live."""

    class Broken(ScriptDrafter):
        @property
        def num_pending(self):
            raise ValueError("planted")

    harness = Harness(ToyRunner(LAW, 12), {"script": Broken(lambda *_: ())})
    harness.submit("r/1", (1, 2, 3), drafter="script", **OPTIONS)
    harness.run()

    assert len(harness.ids("r/1")) == 24


def test_a_local_drafter_that_never_gets_done_cannot_hold_up_the_engine():
    """Work that is always pending and never done ends in plain decoding."""

    class Idle(ScriptDrafter):
        num_pending = 1

        def collect(self, timeout_s):
            return []

    harness = Harness(ToyRunner(LAW, 12), {"script": Idle(lambda *_: ())})
    harness.submit("r/1", (1, 2, 3), drafter="script", **OPTIONS)
    harness.run()

    assert harness.last("r/1").stats.tau == 1.0


def test_a_fault_pauses_the_group_longer_each_time_and_refuses_waiting_rows():
    """1 s, then 2 s without a success between; the reason is there for the router."""
    now = [100.0]
    metrics = Metrics(strict=True)
    inner = Exploding(lambda *_: (), "request", 0)
    guarded = GuardedDrafter(inner, group="g", metrics=metrics, clock=lambda: now[0])
    row = DraftRequest("s", 0, 0, (1,), DraftBudget(1, 1))
    guarded.request([row])

    assert not guarded.live
    assert guarded.detail == "raised ValueError"
    assert guarded.num_pending == 1
    assert guarded.collect(0.0) == [DraftRefusal("s", "DRAFTER_FAILED", 1000)]
    now[0] += 1.0
    assert guarded.live
    guarded.request([row])
    assert guarded.collect(0.0) == [DraftRefusal("s", "DRAFTER_FAILED", 2000)]
    assert metrics.value(catalogue.DRAFTER_FAILURES, group="g") == 2


def test_what_the_process_behind_a_link_needs_is_asked_each_time():
    """Features and name are those of the newest process; a drafter of this process has neither."""
    linked = RecordingDrafter()
    guarded = GuardedDrafter(linked, group="g", metrics=Metrics())
    assert (guarded.incarnation, guarded.feature) == ("one", FEATURE)
    linked.incarnation, linked.facts = "two", None
    assert (guarded.incarnation, guarded.feature) == ("two", None)

    local = GuardedDrafter(ScriptDrafter(oracle((), 0)), group="g", metrics=Metrics())
    assert (local.incarnation, local.feature) == ("", None)
