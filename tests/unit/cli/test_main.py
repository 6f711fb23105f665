import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer

import paceline
from paceline.cli import main as cli
from paceline.errors import ConfigError, InvalidRequestError, TargetUnavailableError


def _run(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    code = caught.value.code
    return code if isinstance(code, int) else 0


def test_version_is_printed(monkeypatch, capsys):
    """`paceline --version` needs no command and names the installed version."""
    assert _run(monkeypatch, "--version") == 0
    assert f"paceline {paceline.__version__}" in capsys.readouterr().out


def test_help_is_quick():
    """Help loads neither torch nor transformers nor Ray nor grpc."""
    code = (
        "import sys; from paceline.cli.main import build_app; import typer.main; typer.main.get_command(build_app());"
        "print([name for name in ('torch', 'transformers', 'ray', 'grpc') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("Mend the file."), 2),
        (InvalidRequestError("Too hot.", "temperature"), 2),
        (TargetUnavailableError("none is up"), 1),
    ],
)
def test_errors_become_one_sentence_and_an_exit_code(monkeypatch, capsys, error, code):
    """A Paceline error ends in its sentence on stderr without a traceback; the code tells whose fault it is."""

    def register(app: typer.Typer) -> None:
        @app.command("break")
        def _break() -> None:
            raise error

    monkeypatch.setattr(cli, "_register_installed", register)

    assert _run(monkeypatch, "break") == code
    assert capsys.readouterr().err.strip() == f"paceline: {error}"


def test_a_broken_command_package_does_not_stop_the_others(monkeypatch, capsys):
    """Where an installed package of commands cannot be imported, the rest still works and says so."""
    broken = EntryPoint("x", "paceline_absent.commands:register", "paceline.commands")
    monkeypatch.setattr(cli, "entry_points", lambda group: [broken])

    assert _run(monkeypatch, "--version") == 0
    assert "paceline_absent" in capsys.readouterr().err
