"""Draft heads on a real fleet: they come to running targets, draft from both places, and their loss costs nothing."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import fleet as fleets
import guide_drafter
from apt_heads import add_native_mtp, save_apt_heads, save_apt_target
from fleet import Fleet
from paceline_serve.names import TARGET, drafter_deployment
from steady_load import SteadyLoad

pytestmark = [pytest.mark.serve, pytest.mark.timeout(900)]

_PROMPT = "the quick brown fox jumps over the lazy dog, the quick brown fox jumps"
_METHODS = {"near": "eagle", "own": "mtp", "far": "eagle", "wide": "medusa", "mine": "last-seen"}
_LINKED_S = 90


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that brings MTP modules, an EAGLE and a Medusa head for it, and a drafter's package from outside."""
    folder = tmp_path_factory.mktemp("heads")
    heads = save_apt_heads(folder, save_apt_target(folder / "target"))
    add_native_mtp(folder / "target", heads["mtp"])
    shutil.rmtree(heads["mtp"])  # its modules are the target's own now
    package = folder / "packages" / "lastseen"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "drafter.py").write_text(guide_drafter.guide_code(), encoding="utf-8")
    return folder


@pytest.fixture(name="fleet", scope="module")
def _fleet(folder: Path):
    path = os.pathsep.join(filter(None, [str(folder / "packages"), os.environ.get("PYTHONPATH", "")]))
    with fleets.running(folder, PYTHONPATH=path) as fleet:
        yield fleet


@pytest.fixture(name="config", scope="module")
def _config(fleet: Fleet, folder: Path) -> dict[str, Any]:
    """A running fleet with one group, which needs no features."""
    config = {
        "model": {"source": str(folder / "target"), "name": "tiny"},
        "engine": {"kv_cache_tokens": 8192, "max_running": 8, "threads": 1},
        "drafters": {"mine": {"method": guide_drafter.NAME}},
        "gateway": {"request_timeout_s": 60},
        # A drafter on a shared core is late more often than not; its drafts are waited for here.
        "tunables": {"draft_wait_share": 4.0, "draft_adaptive": False, "draft_top_k": 2},
    }
    fleet.deploy(config, within_s=600)
    return config


def test_heads_come_to_a_running_fleet(fleet: Fleet, config: dict[str, Any], folder: Path) -> None:
    """The first groups that need features replace the targets, and clients see nothing of it; a further one joins."""
    before = fleet.pids(TARGET)
    load = SteadyLoad(fleet, clients=2, lengths=(24, 32, 48, 64))
    with load:
        config["drafters"] |= {
            "near": {"method": "eagle", "place": "in_process", "model": str(folder / "eagle")},
            "own": {"method": "mtp", "place": "in_process"},  # the target's own modules
            "far": {"method": "eagle", "model": str(folder / "eagle"), "kv_cache_tokens": 4096},
        }
        fleet.deploy(config, within_s=600)
        Fleet.eventually(lambda: not set(fleet.pids(TARGET)) & set(before), "other targets", within_s=_LINKED_S)
        replaced = fleet.pids(TARGET)
        config["drafters"]["wide"] = {"method": "medusa", "model": str(folder / "medusa")}
        fleet.deploy(config, within_s=600)
        Fleet.eventually(lambda: _live(fleet) == dict.fromkeys(_METHODS, True), "all groups live", within_s=_LINKED_S)

    assert fleet.pids(TARGET) == replaced
    assert not load.report.failed, load.report.failed[:10]
    assert not load.report.wrong, load.report.wrong[:10]


@pytest.mark.parametrize("group", _METHODS)
def test_every_group_drafts_and_changes_no_text(fleet: Fleet, config: dict[str, Any], group: str) -> None:
    """A seed has the text of plain decoding at temperature 0 and 1; drafts of the group have been tested."""
    plain = {temperature: _ask(fleet, "off", temperature) for temperature in (0, 1)}
    give_up_at, tested = time.monotonic() + 120, False
    while not tested:
        assert time.monotonic() < give_up_at, f"no draft of {group} has been tested"
        for temperature, expected in plain.items():
            answer = _ask(fleet, "on", temperature, drafter=group)
            assert answer["choices"][0]["text"] == expected["choices"][0]["text"]
            assert answer["paceline"]["drafter"] == group
            tested = tested or answer["paceline"]["alpha"] is not None


def test_an_operator_sees_methods_and_weights(fleet: Fleet, config: dict[str, Any]) -> None:
    """`paceline status` names the method and the weights of every replica, and what became of each group's drafts."""
    done = fleet.command("status", "--json")
    groups = {group["name"]: group["replicas"] for group in json.loads(done.stdout)["groups"]}

    seen = {entry["name"]: entry for entry in groups[TARGET][0]["drafter_groups"]}
    assert {name: entry["method"] for name, entry in seen.items()} == _METHODS
    assert all(entry["tested"] for entry in seen.values())
    weights = {name: groups[drafter_deployment(name)][0]["weights_version"] for name in ("far", "wide", "mine")}
    assert weights["far"] != weights["wide"]
    assert weights["far"]
    assert not weights["mine"]


def test_a_killed_head_costs_nothing(fleet: Fleet, config: dict[str, Any]) -> None:
    """An answer goes on while the only replica of its group dies; the group comes back and drafts again."""
    plain = _ask(fleet, "off", 1, max_tokens=400)
    (killed,) = fleet.pids(drafter_deployment("far"))
    asked = fleet.start(_ask, fleet, "on", 1, drafter="far", max_tokens=400)
    time.sleep(0.1)
    os.kill(killed, signal.SIGKILL)

    assert asked.result(120)["choices"][0]["text"] == plain["choices"][0]["text"]
    Fleet.eventually(lambda: set(fleet.pids(drafter_deployment("far"))) - {killed}, "a new replica", within_s=_LINKED_S)
    Fleet.eventually(lambda: _live(fleet)["far"], "the group is live again", within_s=_LINKED_S)
    test_every_group_drafts_and_changes_no_text(fleet, config, "far")


def _live(fleet: Fleet) -> dict[str, bool]:
    (model,) = httpx.get(f"{fleet.url}/v1/models", timeout=30).json()["data"]
    return {group["name"]: group["live"] for group in model["paceline"]["drafter_groups"]}


def _ask(fleet: Fleet, mode: str, temperature: float, *, max_tokens: int = 48, **speculation: str) -> dict[str, Any]:
    body = {"prompt": _PROMPT, "max_tokens": max_tokens, "temperature": temperature, "seed": 11, "ignore_eos": True}
    body["speculation"] = {"mode": mode, **speculation}
    response = httpx.post(f"{fleet.url}/v1/completions", json=body, timeout=120)
    response.raise_for_status()
    return response.json()
