"""A fleet that is changed while clients ask: what is replaced, what stays, and that no answer suffers."""

from typing import Any

import httpx
import pytest

import fleet as fleets
from fleet import Fleet
from paceline_serve.names import GATEWAY, TARGET, drafter_deployment
from steady_load import LoadReport, SteadyLoad
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1500)]

_NGRAM = drafter_deployment("ngram")
_MORE = drafter_deployment("more")


@pytest.fixture(name="fleet", scope="module")
def _fleet(tmp_path_factory):
    with fleets.running(tmp_path_factory.mktemp("rolling")) as fleet:
        yield fleet


@pytest.fixture(name="config", scope="module")
def _config(fleet: Fleet) -> dict[str, Any]:
    """What runs: changed by each test, and deployed."""
    folder = fleet.folder / "tiny"
    save_tiny_model(folder, vocab_size=320, max_position_embeddings=4096)
    byte_level().save_pretrained(folder)
    config = {
        "model": {"source": str(folder)},
        "engine": {"kv_cache_tokens": 8192, "max_running": 8, "threads": 1},
        # Shorter than an answer of several hundred tokens takes under load, so that some have to move.
        "target": {"replicas": 2, "migrate_after_s": 1.0},
        "drafters": {"ngram": {"method": "ngram"}},
        "gateway": {"replicas": 2, "request_timeout_s": 60},
    }
    fleet.deploy(config, within_s=600)
    return config


@pytest.fixture(name="load")
def _load(fleet: Fleet, config: dict[str, Any]) -> SteadyLoad:
    return SteadyLoad(fleet)


def _pids(fleet: Fleet, *deployments: str) -> dict[str, list[int]]:
    return {name: fleet.pids(name) for name in deployments}


def _assert_nobody_noticed(report: LoadReport) -> None:
    assert not report.failed, report.failed[:10]
    assert not report.wrong, report.wrong[:10]


def test_changed_tunables_restart_nothing(fleet, config, load):
    """They reach running replicas, beside the answers that run."""
    before = _pids(fleet, GATEWAY, TARGET, _NGRAM)
    config["tunables"] = {"max_draft_tokens": 2, "log_level": "WARNING"}

    with load:
        load.wait(8)
        fleet.deploy(config, within_s=600)
        load.wait(8)

    assert _pids(fleet, GATEWAY, TARGET, _NGRAM) == before
    _assert_nobody_noticed(load.report)


@pytest.mark.full
def test_drafter_groups_are_swapped_added_and_removed_beside_running_targets(fleet, config, load):
    """Each is an application of its own: a change of one restarts its own replicas only."""
    before = _pids(fleet, GATEWAY, TARGET)
    old_drafters = set(fleet.pids(_NGRAM))

    with load:
        config["drafters"] = {"ngram": {"method": "ngram", "max_match_tokens": 6}, "more": {"method": "ngram"}}
        fleet.deploy(config, within_s=600)
        Fleet.eventually(lambda: _groups(fleet) == {"ngram": True, "more": True}, "both groups live", within_s=60)
        assert not old_drafters & set(fleet.pids(_NGRAM))
        answer = fleet.ask("again and again and again", speculation={"mode": "on", "drafter": "more"})
        assert answer["paceline"]["drafter"] == "more"

        del config["drafters"]["more"]
        fleet.deploy(config, within_s=600)
        Fleet.eventually(lambda: _groups(fleet) == {"ngram": True}, "the group is gone", within_s=60)
        Fleet.eventually(lambda: not fleet.pids(_MORE), "its processes are gone", within_s=60)

    assert _pids(fleet, GATEWAY, TARGET) == before
    _assert_nobody_noticed(load.report)


@pytest.mark.parametrize(
    ("replicas", "answers"),
    [
        pytest.param(2, 120, id="short"),
        pytest.param(2, 500, id="long", marks=pytest.mark.full),
        pytest.param(1, 120, id="one-of-each", marks=pytest.mark.full),
    ],
)
def test_another_release_replaces_every_process_and_loses_no_answer(fleet, config, replicas, answers):
    """New replicas take over before old ones stop; answers that a stopping target cannot finish go on elsewhere."""
    if replicas != config["target"]["replicas"]:
        config["target"]["replicas"] = config["gateway"]["replicas"] = replicas
        fleet.deploy(config, within_s=600)
    expected = {GATEWAY: replicas, TARGET: replicas, _NGRAM: 1}
    _wait_counts(fleet, expected)
    before = _pids(fleet, *expected)
    config["release"] = f"{config.get('release', '')}+"

    with SteadyLoad(fleet) as load:
        load.wait(10)
        fleet.deploy(config, within_s=600)
        load.wait(max(10, answers - load.asked), within_s=600)

    assert load.report.answered >= answers
    _assert_nobody_noticed(load.report)
    _wait_counts(fleet, expected)
    assert not _all(_pids(fleet, *expected)) & _all(before)


def _wait_counts(fleet: Fleet, expected: dict[str, int]) -> None:
    Fleet.eventually(lambda: {name: len(fleet.pids(name)) for name in expected} == expected, f"{expected}", within_s=90)


def _all(pids: dict[str, list[int]]) -> set[int]:
    return {pid for some in pids.values() for pid in some}


def _groups(fleet: Fleet) -> dict[str, bool]:
    (model,) = httpx.get(f"{fleet.url}/v1/models", timeout=30).json()["data"]
    return {group["name"]: group["live"] for group in model["paceline"]["drafter_groups"]}
