"""Ray Serve's own autoscaling of targets: load starts one; one that is not needed any more hands its answers over."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

import fleet as fleets
from fleet import Fleet, Generated
from paceline.config.timeouts import MOVE_S
from paceline.v1 import common_pb2
from paceline_serve.names import APP_NAME, TARGET

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.full, pytest.mark.timeout(1500)]

_MIGRATE_AFTER_S = 2.0
_LONG = 400  # tokens
_VERY_LONG = 2400  # takes longer than it takes to notice that a target is not needed


@pytest.fixture(name="fleet", scope="module")
def _fleet(tmp_path_factory) -> Iterator[Fleet]:
    scaling = {
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 2,
        "upscale_delay_s": 1,
        "downscale_delay_s": 2,
    }
    with fleets.running(tmp_path_factory.mktemp("autoscaling")) as fleet:
        fleet.deploy(
            {
                "model": {"source": "smollm2-135m", "dtype": "bfloat16"},
                "engine": {"kv_cache_tokens": 8192, "threads": 1},
                "target": {"migrate_after_s": _MIGRATE_AFTER_S, "autoscaling": scaling},
            },
            within_s=600,
        )
        yield fleet


def test_load_starts_a_target_and_one_that_stops_hands_its_answer_over(fleet):
    """Three long streams want a second target. With less to do one goes within its bounds, and its answer goes on."""
    references: list[list[int]] = []
    enough = threading.Event()
    asking = [fleet.start(_ask_on, fleet, references, enough) for _ in range(3)]
    Fleet.eventually(lambda: _targets(fleet) == (2, 2), "a second target", within_s=240)
    Fleet.eventually(lambda: references, "an answer of the first target", within_s=240)

    enough.set()
    for future in asking:
        future.result(120)
    moving = [_begin_very_long(fleet) for _ in range(2)]  # the second goes to the target that has less to do
    Fleet.eventually(lambda: _targets(fleet)[0] == 1, "fewer targets are wanted", within_s=120)
    stopped_at = time.monotonic()
    Fleet.eventually(lambda: len(fleet.pids(TARGET)) == 1, "the target that stops is gone", within_s=60)
    took_s = time.monotonic() - stopped_at

    ends = [future.result(240) for future in moving]
    assert ends[0].ids[0] == ends[1].ids[0] == _answer(fleet, lambda _count: None, _VERY_LONG).ids[0]
    assert sorted(end.summary.resumed_count for end in ends) == [0, 1]
    assert took_s <= _MIGRATE_AFTER_S + MOVE_S
    assert all(ids == references[0] for ids in references)


def _ask_on(fleet: Fleet, answers: list[list[int]], enough: threading.Event) -> None:
    """Ask for the same answer again and again; the last one is given up when it is enough."""
    while not enough.is_set():
        with contextlib.suppress(_GivenUp):
            answers.append(_answer(fleet, lambda _count: _give_up_if(enough)).ids[0])


def _begin_very_long(fleet: Fleet) -> Future[Generated]:
    """An answer that has begun when this returns."""
    begun = threading.Event()
    future = fleet.start(_answer, fleet, lambda _count: begun.set(), _VERY_LONG)
    assert begun.wait(60)
    return future


def _give_up_if(enough: threading.Event) -> None:
    if enough.is_set():
        raise _GivenUp


def _answer(fleet: Fleet, on_message: Callable[[int], None], num_tokens: int = _LONG) -> Generated:
    sampling = common_pb2.SamplingParams(temperature=1.0, max_tokens=num_tokens, ignore_eos=True)
    return fleet.generate("One, two, three,", on_message, seed=7, sampling=sampling)


def _targets(fleet: Fleet) -> tuple[int, int]:
    """Targets that Ray Serve wants, and those that run."""
    target = fleet.applications()[APP_NAME]["deployments"][TARGET]
    return target["target_num_replicas"], sum(replica["state"] == "RUNNING" for replica in target["replicas"])


class _GivenUp(Exception):  # noqa: N818  # no error: a client that has heard enough
    pass
