import json

import pytest
from typer.testing import CliRunner

from paceline.cli import models
from paceline.errors import ModelUnavailableError
from paceline.modeling import resolve


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))


def test_list_names_the_demo_model_and_its_license():
    """The table and the JSON show what can be fetched by name, and that nothing is there yet."""
    table = CliRunner().invoke(models.app, ["list"]).output
    rows = json.loads(CliRunner().invoke(models.app, ["list", "--json"]).output)

    assert "smollm2-135m" in table
    assert rows[0]["license"] == "Apache-2.0"
    assert rows[0]["folder"] == ""


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["path", "smollm2-135m"], "paceline models fetch smollm2-135m"),
        (["path", "gpt-9"], "Known names: smollm2-135m"),
        (["fetch", "gpt-9"], "Use a name (smollm2-135m), a folder, or a hub id"),
        (["fetch", "smollm2-135m", "--revision", "main"], "one fixed revision"),
    ],
)
def test_what_is_not_there_is_named_with_what_to_do(arguments, hint):
    """A model that was not fetched, or that nobody knows, ends in an error that names the next step."""
    result = CliRunner().invoke(models.app, arguments)

    assert isinstance(result.exception, ModelUnavailableError)
    assert hint in str(result.exception)


def test_fetch_prints_the_folder(tmp_path, monkeypatch):
    """`fetch` shows progress on stderr and prints the folder alone, so that scripts can use it."""

    def fetch_model(entry, progress):
        progress("downloading", 1, 2)
        return tmp_path / entry.name

    monkeypatch.setattr(resolve, "fetch_model", fetch_model)

    assert CliRunner().invoke(models.app, ["fetch", "smollm2-135m"]).stdout.strip() == str(tmp_path / "smollm2-135m")


@pytest.mark.parametrize(("options", "revision"), [([], None), (["--revision", "abc"], "abc")])
def test_fetch_takes_a_hub_id_and_its_revision(tmp_path, monkeypatch, options, revision):
    """A model of a hub is fetched by its id, at the commit that is asked for."""
    asked = []

    def fetch_from_hub(hub_id, at):
        asked.append((hub_id, at))
        return tmp_path

    monkeypatch.setattr(resolve, "fetch_from_hub", fetch_from_hub)

    assert CliRunner().invoke(models.app, ["fetch", "org/name", *options]).stdout.strip() == str(tmp_path)
    assert asked == [("org/name", revision)]
