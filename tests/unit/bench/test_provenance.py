"""Where results come from."""

import subprocess

import pytest

import paceline
from paceline.bench.provenance import collect_provenance, command_line, source_state


def _git(folder, *arguments):
    name = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", "-C", folder, *name, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    """A repository with a package in it."""
    _git(tmp_path, "init", "-q")
    (tmp_path / "__init__.py").write_text("")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_checkout_is_its_commit(checkout):
    """All 40 digits."""
    assert len(source_state(checkout)) == 40


def test_a_changed_checkout_says_so(checkout):
    """Files that are not committed make the commit a lie otherwise."""
    clean = source_state(checkout)
    (checkout / "__init__.py").write_text("x = 1")

    assert source_state(checkout) == f"{clean}-dirty"


def test_a_package_that_git_does_not_track_is_a_release(checkout, tmp_path):
    """A virtual environment inside some other project's checkout is not that project."""
    folder = checkout / "site-packages"
    folder.mkdir()

    assert source_state(folder) == f"release {paceline.__version__}"


def test_the_command_keeps_no_secret_and_no_folder():
    """Both spellings of a flag with a key."""
    assert command_line(["/x/bin/paceline", "bench", "--api-key", "s", "--seed", "1"]) == (
        "paceline bench --api-key *** --seed 1"
    )
    assert command_line(["paceline", "--api-key=s"]) == "paceline --api-key=***"


def test_everything_that_a_repetition_needs_is_there():
    """Machine, versions, source, command; settings and seed as given."""
    found = collect_provenance(config={"x": 1}, seed=7, argv=["paceline"])

    assert {"cpu", "cores", "memory_gib", "load_before"} <= found.machine.keys()
    assert {"paceline", "python", "torch", "transformers", "ray"} <= found.versions.keys()
    assert (found.config, found.seed) == ({"x": 1}, 7)
    assert found.source
