"""The ``paceline`` command: mounts all commands and turns errors into one sentence and an exit code."""

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

import paceline
from paceline.cli import bench, chat, config, doctor, drafter, models, train
from paceline.errors import ClientError, PacelineError, SetupError

_COMMANDS_GROUP = "paceline.commands"  # entry points of packages that add commands: register(app)


def build_app() -> typer.Typer:
    """The command tree, commands of installed packages included.

    Commands import what they need when they run, so that ``--help`` loads neither torch nor Ray.
    """
    app = typer.Typer(
        name="paceline",
        help="Lossless hierarchical speculative decoding for LLMs.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    app.command("chat")(chat.chat)
    app.add_typer(models.app, name="models")
    app.add_typer(config.app, name="config")
    app.add_typer(bench.app, name="bench")
    app.add_typer(train.app, name="train")
    app.add_typer(drafter.app, name="drafter")
    app.command("doctor")(doctor.doctor)
    _register_installed(app)
    return app


def main() -> None:
    """Run the command line. Exit code 2: the call, the file or the request is wrong; 1: something failed."""
    try:
        build_app()()
    except PacelineError as error:
        print(f"paceline: {error}", file=sys.stderr)
        sys.exit(exit_code(error))


def exit_code(error: PacelineError) -> int:
    """2 where the caller can mend it, else 1."""
    return 2 if isinstance(error, SetupError | ClientError) else 1


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"paceline {paceline.__version__}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Lossless hierarchical speculative decoding for LLMs."""


def _register_installed(app: typer.Typer) -> None:
    for entry_point in sorted(entry_points(group=_COMMANDS_GROUP), key=lambda point: point.name):
        try:
            register = entry_point.load()
        except ImportError as error:
            # `doctor` and `config` must work where another package is broken.
            print(f"paceline: the commands of '{entry_point.value}' are missing: {error}", file=sys.stderr)
            continue
        register(app)
