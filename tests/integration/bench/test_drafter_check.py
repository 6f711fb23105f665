"""The check of a drafter, whole: on a target that serves, and as a command."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from guide_drafter import NAME, guide_code, guide_package, package
from paceline.cli.main import build_app
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

FEW = ["--prompts", "2", "--max-tokens", "24", "--threads", "1"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny_model(tmp_path_factory.mktemp("target"), vocab_size=320)
    byte_level().save_pretrained(str(folder))
    return folder


def check(name: str, model: Path, *options: str):
    return CliRunner().invoke(build_app(), ["drafter", "check", name, "--model", str(model), *FEW, *options])


def test_the_guides_drafter_passes(tmp_path: Path, model: Path) -> None:
    """Every claim holds; acceptance, tokens per pass and cost are there, on its own process's clock."""
    with guide_package(tmp_path):
        done = check(NAME, model, "--option", "reach=3", "--json")
    result = json.loads(done.stdout)

    assert done.exit_code == 0, done.output
    assert result["data"]["violated"] == []
    assert len(result["data"]["findings"]) > 15
    for figures in result["data"]["figures"].values():
        assert figures["equal"] == figures["answers"] == 2
        assert figures["tau"] >= 1
        assert figures["draft_ms_per_round"] > 0
    assert result["data"]["figures"]["0.0"]["alpha"] is not None


def test_what_is_broken_is_said_and_ends_with_1(tmp_path: Path, model: Path) -> None:
    """A drafter that ignores its budget fails by the sentence, beside a table of all claims."""
    greedy = guide_code().replace("min(self._reach, row.budget.max_depth, row.budget.max_nodes)", "self._reach")
    with package(tmp_path, "greedy", greedy):
        done = check("greedy.drafter:LastSeen", model, "--option", "reach=40")

    assert done.exit_code == 1
    assert "violated: Whatever the budget, a proposal is well-formed and stays inside it." in done.stderr
    assert "more nodes, depth or children than were asked for" in done.stderr
    assert "What it is worth" in done.stdout


def test_a_drafter_that_raises_now_and_then_changes_no_answer(tmp_path: Path, model: Path) -> None:
    """It passes the dialogue and fails while it serves; that is found, and the answers are those of plain decoding."""
    asked = "    def _proposal(self, row):\n"
    tired = "        if row.session.startswith('speculative'):\n            raise RuntimeError('tired')\n"
    moody = guide_code().replace(asked, asked + tired)
    with package(tmp_path, "moody", moody):
        done = check("moody.drafter:LastSeen", model, "--json")
    data = json.loads(done.stdout)["data"]

    assert done.exit_code == 1
    assert [sentence.split(" Seen")[0] for sentence in data["violated"]] == ["Nothing is raised while it serves."]
    assert data["figures"]["1.0"]["equal"] == 2


def test_methods_of_the_library_can_be_checked(model: Path) -> None:
    """A name of the configuration with its options works as well."""
    done = check("ngram", model, "--option", "min_match_tokens=1")

    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.drafter:Drafter"], "cannot be imported"),
        (["telepathy"], "telepathy"),
        (["ngram", "--option", "min_match_tokens"], "write NAME=VALUE"),
        (["ngram", "--option", "reach=3"], "reach: unknown key"),
    ],
)
def test_a_call_that_cannot_work_is_refused_with_a_sentence(model: Path, arguments: list[str], sentence: str) -> None:
    """Before anything is measured."""
    done = check(arguments[0], model, *arguments[1:])

    assert done.exit_code != 0
    assert sentence in str(done.exception)
