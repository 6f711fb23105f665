import pytest
from pydantic import ValidationError

from paceline.config.schema import (
    DeploymentConfig,
    DrafterConfig,
    GatewayConfig,
    ModelConfig,
    PeerConfig,
    Section,
    TargetConfig,
)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "smollm2-135m"),
        ({"source": "org/Some-Model"}, "Some-Model"),
        ({"source": "models/mine/"}, "mine"),
        ({"source": "org/Some-Model", "name": "chat"}, "chat"),
    ],
)
def test_the_served_name_follows_from_the_source(fields, name):
    """Clients use the given name, else the last part of the source."""
    assert ModelConfig(**fields).served_name == name


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "draft_model"},
        {"method": "ngram", "model": "smollm2-135m"},
        {"method": "ngram", "min_match_tokens": 5, "max_match_tokens": 4},
        {"method": "telepathy"},
        {"method": "ngram", "replicas": -1},
    ],
)
def test_drafters_that_cannot_work_are_refused(fields):
    """A group without what its method needs, or with what it cannot use, is an error."""
    with pytest.raises(ValidationError):
        DrafterConfig(**fields)


@pytest.mark.parametrize("name", ["", "Upper", "with space", "-dash", "x" * 41, "under_score"])
def test_group_names_fit_into_labels_and_requests(name):
    """Group names are lower-case letters, digits and hyphens, at most 40."""
    with pytest.raises(ValidationError):
        DeploymentConfig(drafters={name: DrafterConfig(method="ngram")})


@pytest.mark.parametrize(
    "resources",
    [{"CPU": 1}, {"GPU": 1}, {"memory": 1}, {" ": 1}, {"label": 0}, {"label": 0.00001}, {"label": float("inf")}],
)
def test_resources_that_ray_would_refuse_are_refused(resources):
    """Only custom resources, in amounts that Ray can count."""
    with pytest.raises(ValidationError):
        TargetConfig(resources=resources)


@pytest.mark.parametrize("endless", [float("inf"), float("nan")])
def test_numbers_are_finite(endless):
    """What is no number in JSON could not be sent to a cluster."""
    with pytest.raises(ValidationError):
        GatewayConfig(request_timeout_s=endless)


def test_port_ranges_must_not_be_empty():
    """The first peer port is not above the last."""
    with pytest.raises(ValidationError):
        PeerConfig(port_min=2000, port_max=1999)


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        *(
            ({"method": "ngram", option: value}, option)
            for option, value in {
                "model": "smollm2-135m",
                "revision": "main",
                "dtype": "float32",  # the default, and still nothing that the method has
                "num_layers": 2,
                "kv_cache_tokens": 8192,
                "max_law_tokens": 16,
            }.items()
        ),
        ({"method": "draft_model", "model": "small", "min_match_tokens": 1}, "min_match_tokens"),
        ({"method": "draft_model", "model": "small", "max_match_tokens": 9}, "max_match_tokens"),
    ],
)
def test_options_of_another_method_are_refused(fields, option):
    """An option that the method does not have is an error that names it, never ignored."""
    with pytest.raises(ValidationError, match=f"has no {option}"):
        DrafterConfig(**fields)


@pytest.mark.parametrize(
    "config", [DrafterConfig(method="ngram"), DrafterConfig(method="draft_model", model="small", max_law_tokens=8)]
)
def test_a_dumped_drafter_can_be_read_again(config):
    """A dump has the options of its method only, so a replica that reads it gets the same group."""
    assert DrafterConfig.model_validate(config.model_dump()) == config


def test_the_two_doors_need_different_ports():
    """One port cannot serve both APIs, whichever of them the file names."""
    with pytest.raises(ValidationError, match="both 9000"):
        GatewayConfig(http_port=9000)


def test_the_largest_body_fits_into_a_message():
    """Replicas can send each other whatever prompt the gateway lets in."""
    with pytest.raises(ValidationError, match="at least twice"):
        DeploymentConfig(gateway=GatewayConfig(max_body_bytes=2**20), peer=PeerConfig(max_message_bytes=2**21 - 1))

    DeploymentConfig(gateway=GatewayConfig(max_body_bytes=2**20), peer=PeerConfig(max_message_bytes=2**21))


@pytest.mark.parametrize("section", Section.__subclasses__(), ids=lambda section: section.__name__)
def test_sections_are_frozen_and_closed(section):
    """No section can change after it was read, and none takes unknown keys."""
    assert section.model_config["frozen"]
    assert section.model_config["extra"] == "forbid"


def test_a_disabled_group_must_exist():
    """A misspelt name would leave the group drafting; the message lists the groups."""
    drafters = {"ngram": {"method": "ngram"}}
    with pytest.raises(ValidationError, match=r"no group is named ngarm\. Groups: ngram"):
        DeploymentConfig(drafters=drafters, tunables={"disabled_groups": ["ngarm"]})
    assert DeploymentConfig(drafters=drafters, tunables={"disabled_groups": ["ngram"]}).tunables.disabled_groups


def test_block_verification_refuses_trees():
    """Block verification is defined on chains; the message says what to change."""
    trees = {"draft_top_k": 2}
    with pytest.raises(ValidationError, match=r"takes chains only: set tunables\.draft_top_k to 1"):
        DeploymentConfig(verifier="block", tunables=trees)
    assert DeploymentConfig(verifier="rejection", tunables=trees).tunables.draft_top_k == 2
    assert DeploymentConfig(verifier="block").tunables.draft_top_k == 1
