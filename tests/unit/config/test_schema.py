import pytest
from pydantic import ValidationError

from paceline.config.schema import DeploymentConfig, DrafterConfig, ModelConfig, PeerConfig, Section


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


def test_port_ranges_must_not_be_empty():
    """The first peer port is not above the last."""
    with pytest.raises(ValidationError):
        PeerConfig(port_min=2000, port_max=1999)


@pytest.mark.parametrize("section", Section.__subclasses__(), ids=lambda section: section.__name__)
def test_sections_are_frozen_and_closed(section):
    """No section can change after it was read, and none takes unknown keys."""
    assert section.model_config["frozen"]
    assert section.model_config["extra"] == "forbid"
