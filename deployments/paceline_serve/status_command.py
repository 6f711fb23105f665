"""``paceline status``: what the fleet is doing, and what is wrong with it."""

import json
import time

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from paceline.errors import SetupError
from paceline_serve.attached_serve import AttachedServe, attached
from paceline_serve.fleet_look import look
from paceline_serve.signals import StopRequestedError, stop_on_signals
from paceline_serve.status_tables import document, render

_EVERY_S = 1.0
_WIDE = 160  # columns where the output is no terminal: what reads it must not get broken lines


def show_status(address: str | None, *, watch: bool, as_json: bool) -> int:
    """Print the fleet's status, again and again if ``watch``. Returns the exit code: 1 where something is wrong."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, emoji=False, highlight=False, width=_WIDE)
    with attached(address) as serve:
        if watch:
            return _watch(serve, console, as_json=as_json)
        fleet = look(serve)
        if as_json:
            typer.echo(json.dumps(document(fleet)))
        else:
            console.print(render(fleet))
        return 1 if fleet.problems else 0


def _watch(serve: AttachedServe, console: Console, *, as_json: bool) -> int:
    """Refresh each second until Ctrl-C; as JSON one line each time."""
    try:
        with stop_on_signals():
            if as_json:
                while True:
                    typer.echo(json.dumps(document(look(serve))))
                    time.sleep(_EVERY_S)
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(_frame(serve), refresh=True)
                    time.sleep(_EVERY_S)
    except StopRequestedError:
        return 0


def _frame(serve: AttachedServe) -> RenderableType:
    try:
        return render(look(serve))
    except SetupError as error:  # a controller that is away comes back
        return Text(str(error))
