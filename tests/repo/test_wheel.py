import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from paceline.config.load import load_config
from repository import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """An environment with the built wheel; only its dependencies come from the environment of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "env"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "-q"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    # A .pth file adds the folder but does not follow the .pth files in it: the editable install stays unseen.
    site_packages = next((environment / "lib").glob("python*/site-packages"))
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return environment


def _run(environment: Path, *command: str) -> str:
    program, *arguments = command
    command_line = [str(environment / "bin" / program), *arguments]
    return subprocess.run(command_line, check=True, capture_output=True, text=True, cwd=environment).stdout.strip()


def test_shipped_configs_are_found_inside_the_wheel(installed):
    """In an installed wheel the configs lie inside paceline_serve, and are those of the repository."""
    code = "from paceline.config.locate import find_config; print(find_config('local-cpu'))"

    found = Path(_run(installed, "python", "-c", code))

    assert found.is_relative_to(installed)
    assert found.parent.parent.name == "paceline_serve"
    assert load_config(found) == load_config(ROOT / "deployments" / "configs" / "local-cpu.yaml")


def test_what_is_no_python_ships_too(installed):
    """Sources of the kernels and the prompts to measure with lie where the code looks for them."""
    library = ROOT / "platform" / "paceline"
    site_packages = next((installed / "lib").glob("python*/site-packages"))
    here, shipped = (
        {str(path.relative_to(folder)) for kind in ("*.c", "*.h", "*.jsonl") for path in folder.rglob(kind)}
        for folder in (library, site_packages / "paceline")
    )

    assert "kernels/decoder_layers.c" in here
    assert shipped == here


def test_the_command_line_works_from_the_wheel(installed):
    """`paceline` runs from the wheel and knows what ships with it."""
    assert "is valid" in _run(installed, "paceline", "config", "validate", "local-cpu")
    assert "local-cpu.yaml" in _run(installed, "paceline", "config", "list").splitlines()
