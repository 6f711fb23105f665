"""Parts of the operator's commands, on fleets that exist on paper only."""

import io
import json

import pytest
from ray.serve.schema import ServeApplicationSchema
from rich.console import Console

from paceline.config.load import config_from_mapping
from paceline.core.load import DrafterGroupStatus, DrafterLoad, TargetLoad
from paceline.errors import ConfigError, SetupError
from paceline.rpc.codec_target import LoadReport
from paceline.rpc.replica_status import (
    DrafterStatus,
    GatewayStatus,
    GroupExperience,
    ReplicaStatus,
    SpeculationSwitch,
    TargetStatus,
)
from paceline_serve.attached_serve import attached
from paceline_serve.deploy_schema import render as render_schema
from paceline_serve.drain_command import find_replica, gap_without, progress
from paceline_serve.fleet_status import fleet_status
from paceline_serve.names import APP_NAME, GATEWAY, TARGET, drafter_app
from paceline_serve.speculation_command import check_groups, switched, with_switch
from paceline_serve.status_tables import age, document, render

AUTO = SpeculationSwitch(enabled=True)
NOW = 1000.0


def target(*, live=True, stalled_s=0.0, draining=False, held=2, switch=AUTO):
    groups = (DrafterGroupStatus("ngram", "ngram", live, "" if live else "vocabulary differs"),)
    load = TargetLoad(2, 1, 100, 75, 80.0, groups)
    report = LoadReport(load, held, "fp", 12.0, draining, stalled_s)
    role = TargetStatus("m", report, (GroupExperience("ngram", 3.25, 10, 8),))
    return ReplicaStatus(role, "blue", 12.0, draining, switch)


def gateway(switch=AUTO):
    return ReplicaStatus(GatewayStatus(4, 2), "blue", 30.0, False, switch)


def drafter(links=1, *, draining=False):
    return ReplicaStatus(
        DrafterStatus("ngram", "eagle", "5eed", "abc", links, DrafterLoad(3, 1, 0.5)), "", 5.0, draining
    )


def details(*, targets=("t1aa", "t1bb"), wanted=2, state="RUNNING", status="HEALTHY"):
    def deployment(ids, wanted, state="RUNNING", status="HEALTHY"):
        replicas = [
            {"replica_id": key, "state": state, "node_ip": "10.0.0.1", "pid": 7, "start_time_s": NOW - 90}
            for key in ids
        ]
        return {"status": status, "message": "", "target_num_replicas": wanted, "replicas": replicas}

    return {
        APP_NAME: {
            "status": "RUNNING",
            "message": "",
            "deployments": {TARGET: deployment(targets, wanted, state, status), GATEWAY: deployment(["gate"], 1)},
        },
        drafter_app("ngram"): {
            "status": "RUNNING",
            "message": "",
            "deployments": {"drafter-ngram": deployment(["draf"], 1)},
        },
    }


def fleet(statuses=None, *, switch=AUTO, **options):
    statuses = {"t1aa": target(), "t1bb": target(), "gate": gateway(), "draf": drafter()} | (statuses or {})
    return fleet_status(details(**options), statuses, switch, now=NOW)


def test_a_fleet_that_is_well_has_no_problems():
    """Everything runs, answers and has the deployed switches; gateways come first, then targets, then drafters."""
    well = fleet()

    assert well.problems == []
    assert [row.name for row in well.deployments] == [GATEWAY, TARGET, "drafter-ngram"]


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (fleet({"t1bb": "it does not answer in time"}), "target t1bb says nothing: it does not answer in time"),
        (fleet({"t1bb": target(live=False)}), "drafter group ngram is not live at target t1bb: vocabulary differs"),
        (fleet({"t1bb": target(stalled_s=33)}), "target t1bb has got nowhere for 33 s"),
        (fleet(wanted=3), "Target has 2 of 3 replicas running"),
        (fleet(targets=(), wanted=0), "Target has no replica"),
        (fleet(status="UNHEALTHY"), "Target is unhealthy"),
        (fleet({"t1aa": target(draining=True)}), "Target has 1 of 2 replicas running"),
        (
            fleet({"gate": gateway(SpeculationSwitch(enabled=False))}),
            "gateway gate does not have the deployed speculation switches yet",
        ),
    ],
    ids=["silent", "no drafter", "stalled", "too few", "none", "unhealthy", "draining", "old switch"],
)
def test_what_is_wrong_is_said_in_one_sentence(found, problem):
    """One sentence for one fact, with the replica's name where it is one replica's."""
    assert found.problems == [problem]
    assert document(found)["healthy"] is False


def test_a_replica_that_takes_new_settings_counts_as_running():
    """Ray Serve calls it updating for a moment; it serves all the while."""
    assert fleet(state="UPDATING").problems == []


def test_the_tables_show_every_replica_and_end_with_the_verdict():
    """Ids to drain by, load, drafters with reply time and acceptance, the switches, and health in the last line."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(
        render(fleet({"t1bb": "it is of an older release"}, switch=SpeculationSwitch(True, frozenset({"x"}))))
    )
    text = console.export_text()

    group, older = "ngram: live, 3.2 ms, alpha 0.80", "it is of an older release"
    for word in ("t1aa", "10.0.0.1", "25%", "80", group, "eagle", "5eed", older):
        assert word in text
    assert "speculation: auto, but for x" in text
    assert text.splitlines()[-1].startswith("not healthy: ")


def test_the_document_is_json_with_what_the_tables_show():
    """Stable names; what is not known is null or absent, never a made-up number."""
    found = json.loads(json.dumps(document(fleet({"t1bb": "it is of an older release"}))))
    (targets,) = [group for group in found["groups"] if group["name"] == TARGET]
    known, silent = targets["replicas"]

    assert found["speculation"] == {"enabled": True, "disabled_groups": []}
    assert (known["running"], known["waiting"], known["held"], known["free_pages"]) == (2, 1, 2, 75)
    assert known["drafter_groups"][0] == {
        "name": "ngram",
        "method": "ngram",
        "live": True,
        "detail": "",
        "reply_ms": 3.25,
        "tested": 10,
        "accepted": 8,
    }
    assert (silent["silent"], "running" in silent, silent["age_s"]) == ("it is of an older release", False, 90)


@pytest.mark.parametrize(("seconds", "text"), [(5.9, "5s"), (65, "1m05s"), (7260, "2h01m"), (183600, "2d03h")])
def test_ages_have_two_units(seconds, text):
    """Short enough for a table."""
    assert age(seconds) == text


def test_the_beginning_of_an_id_names_a_replica():
    """If it names one only; else the error lists those that could be meant, gateways never."""
    assert find_replica(fleet(), "t1b").replica_id == "t1bb"
    with pytest.raises(ConfigError, match=r"several replicas' ids: t1aa \(Target\), t1bb \(Target\)"):
        find_replica(fleet(), "t1")
    with pytest.raises(ConfigError, match=r"There are: t1aa \(Target\), t1bb \(Target\), draf \(drafter-ngram\)"):
        find_replica(fleet(), "x")
    with pytest.raises(ConfigError, match=r"Change gateway\.replicas"):
        find_replica(fleet(), "gate")


def test_draining_the_last_one_of_a_group_is_told_what_it_costs():
    """Also where the others drain already; what others can do costs nothing."""
    rows = {row.replica_id: row for row in fleet().replicas}

    assert gap_without(rows["t1aa"], fleet()) is None
    assert "max_queue_wait_s" in (gap_without(rows["t1aa"], fleet({"t1bb": target(draining=True)})) or "")
    assert "group ngram" in (gap_without(rows["draf"], fleet()) or "")


def test_progress_says_what_a_draining_replica_still_has():
    """Answers of a target, links of a drafter, and that Ray Serve is next."""
    rows = {row.replica_id: row for row in fleet({"t1aa": target(draining=True, held=3)}).replicas}
    idle = {row.replica_id: row for row in fleet({"draf": drafter(0, draining=True)}).replicas}

    assert progress(rows["t1aa"]) == "3 answers to finish or to hand over"
    assert progress(idle["draf"]) == "idle; Ray Serve is about to replace it"


def test_single_groups_stay_off_when_all_are_turned_on():
    """Whoever turned one off had a reason; only naming it turns it on."""
    settings = {"speculation_enabled": False, "disabled_groups": ["a"], "max_draft_tokens": 3}

    assert switched(settings, on=True, groups=()) == settings | {"speculation_enabled": True}
    assert switched(settings, on=False, groups=["b"]) == settings | {"disabled_groups": ["a", "b"]}
    assert switched(settings, on=True, groups=["a"]) == settings | {"disabled_groups": []}
    with pytest.raises(ConfigError, match="leave --group out"):
        switched({"speculation_enabled": True}, on=False, groups=["a"])


def test_the_switch_changes_nothing_else_of_what_is_deployed():
    """Gateways and targets get it; arguments, counts and all other settings are what they were."""
    config = config_from_mapping({"drafters": {"ngram": {"method": "ngram"}}, "target": {"replicas": 3}})
    before = render_schema(config).applications[0]
    after = with_switch(before, on=False, groups=())
    expected = before.model_dump(exclude_unset=True)
    for deployment in expected["deployments"]:
        deployment["user_config"]["speculation_enabled"] = False

    assert ServeApplicationSchema.model_validate(after.model_dump(exclude_unset=True)) == after
    assert after.model_dump(exclude_unset=True) == expected
    assert all(deployment.user_config["speculation_enabled"] for deployment in before.deployments)


def test_a_group_that_nobody_knows_is_refused():
    """The error lists those that there are."""
    check_groups(["ngram"], fleet())
    with pytest.raises(ConfigError, match=r"No drafter group is called nowhere\. There are: ngram\."):
        check_groups(["nowhere", "ngram"], fleet())


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("http://127.0.0.1:8265", ConfigError, "Give HOST:PORT"),
        ("ray://127.0.0.1:10001", ConfigError, "Give HOST:PORT"),
        ("nonsense", ConfigError, "looks like 127.0.0.1:6379"),
        ("127.0.0.1:1", SetupError, "No Ray answers at 127.0.0.1:1"),
    ],
)
def test_an_address_without_a_ray_is_refused_at_once(address, error, words):
    """No minute of waiting, no stack trace: one sentence that says what to give."""
    with pytest.raises(error, match=words), attached(address):
        pass
