import socket

import pytest

from paceline.config import locate
from paceline.config.schema import DeploymentConfig, DrafterConfig, GatewayConfig
from paceline.errors import ConfigError
from paceline_serve.ports import check_ports, free_port
from paceline_serve.serve_flags import ServeFlags, check_sources_elsewhere, with_flags

_CONFIG = DeploymentConfig(drafters={"ngram": DrafterConfig(method="ngram")})


@pytest.mark.parametrize(
    "drafter",
    [
        DrafterConfig(method="ngram", min_match_tokens=1),
        DrafterConfig(method="draft_model", model="org/small", num_layers=4),
    ],
    ids=lambda drafter: drafter.method,
)
def test_no_flags_change_nothing(drafter):
    """Without flags the configuration stays what the file says, whatever its drafters' methods."""
    config = DeploymentConfig(drafters={"group": drafter})

    assert with_flags(config, ServeFlags()) == config


def test_flags_win_over_the_file():
    """Every flag lands in its field; the served name follows the model."""
    flags = ServeFlags(model="org/name", drafter="draft_model:org/small", engine="native", http_port=81, grpc_port=82)

    changed = with_flags(_CONFIG, flags)

    assert (changed.model.source, changed.model.served_name) == ("org/name", "name")
    assert list(changed.drafters) == ["draft-model"]
    assert (changed.drafters["draft-model"].method, changed.drafters["draft-model"].model) == (
        "draft_model",
        "org/small",
    )
    assert (changed.gateway.http_port, changed.gateway.grpc_port) == (81, 82)


def test_folders_become_absolute(tmp_path, monkeypatch):
    """Replicas have another working directory, so a relative folder is resolved at once."""
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)

    changed = with_flags(_CONFIG, ServeFlags(model="model", drafter="draft_model:./model"))

    assert changed.model.source == str(tmp_path / "model")
    assert changed.drafters["draft-model"].model == str(tmp_path / "model")


def test_a_revision_belongs_to_the_model_that_the_flags_name():
    """--revision pins the hub id of --model."""
    changed = with_flags(_CONFIG, ServeFlags(model="org/name", revision="v1"))

    assert changed.model.revision == "v1"


@pytest.mark.parametrize("flags", [ServeFlags(model="model"), ServeFlags(drafter="draft_model:./other")])
def test_a_relative_folder_means_nothing_on_a_cluster(flags, tmp_path, monkeypatch):
    """With --address a folder is named by its full path there."""
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="full path"):
        check_sources_elsewhere(flags)


def test_what_means_the_same_everywhere_passes():
    """Names, hub ids and full paths are fine."""
    check_sources_elsewhere(ServeFlags())
    check_sources_elsewhere(ServeFlags(model="org/name", drafter="draft_model:/models/small"))


@pytest.mark.parametrize(
    ("drafter", "model"), [("mtp", None), ("eagle:org/head", "org/head"), ("medusa:./head", "head")]
)
def test_a_head_drafts_inside_the_target(drafter, model, tmp_path, monkeypatch):
    """Features need no link there; `mtp` alone takes the modules that the target brings."""
    (tmp_path / "head").mkdir()
    monkeypatch.chdir(tmp_path)

    ((name, group),) = with_flags(_CONFIG, ServeFlags(model="org/name", drafter=drafter)).drafters.items()

    assert (name, group.method, group.place) == (drafter.partition(":")[0], name, "in_process")
    assert group.model == (str(tmp_path / "head") if model == "head" else model)


@pytest.mark.parametrize(("drafter", "kept"), [("eagle", "smollm2-135m/eagle"), ("eagle:org/own", "org/own")])
def test_what_ships_for_the_target_is_taken_without_a_name(drafter, kept, tmp_path, monkeypatch):
    """A name on the command line goes first; a target for which nothing ships needs one."""
    (tmp_path / "smollm2-135m" / "eagle").mkdir(parents=True)
    (tmp_path / "smollm2-135m" / "eagle" / "config.json").touch()
    monkeypatch.setattr(locate, "_shipped_folder", lambda _: tmp_path)

    assert with_flags(_CONFIG, ServeFlags(drafter=drafter)).drafters["eagle"].model == kept
    with pytest.raises(ConfigError, match="needs 'model'"):
        with_flags(_CONFIG, ServeFlags(model="org/name", drafter="eagle"))


def test_a_drafter_from_outside_is_named_by_its_class():
    """The group is called like the class."""
    changed = with_flags(_CONFIG, ServeFlags(drafter="my_package.drafter:Last_Seen"))

    assert changed.drafters == {"last-seen": DrafterConfig(method="my_package.drafter:Last_Seen")}


def test_drafters_can_be_turned_off():
    """--drafter none leaves no group."""
    assert with_flags(_CONFIG, ServeFlags(drafter="none")).drafters == {}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (ServeFlags(drafter="medium"), "draft"),
        (ServeFlags(model="org/name", drafter="draft_model"), "needs 'model'"),
        (ServeFlags(drafter="ngram:org/x"), "has no model"),
        (ServeFlags(engine="steam"), "engine.kind"),
        (ServeFlags(http_port=90000), "gateway.http_port"),
        (ServeFlags(http_port=9000), "http_port and grpc_port"),
    ],
)
def test_nonsense_is_refused_in_words(flags, said):
    """A flag that cannot work is a ConfigError that names what is wrong."""
    with pytest.raises(ConfigError, match=said):
        with_flags(_CONFIG, flags)


@pytest.mark.parametrize("door", ["http_port", "grpc_port"])
def test_a_busy_port_is_named_with_the_flag_that_changes_it(door):
    """Whoever reads the message knows the port and the flag."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        gateway = GatewayConfig(
            **({"http_port": free_port("127.0.0.1"), "grpc_port": free_port("127.0.0.1")} | {door: port})
        )

        with pytest.raises(ConfigError, match=f"Port {port}.*--{door.replace('_', '-')}"):
            check_ports(gateway)


def test_free_ports_pass():
    """Ports that nobody listens on are no reason to stop."""
    check_ports(GatewayConfig(http_port=free_port("127.0.0.1"), grpc_port=free_port("127.0.0.1")))
