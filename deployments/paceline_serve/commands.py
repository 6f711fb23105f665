"""Commands that need Ray; mounted into ``paceline`` through the entry point group ``paceline.commands``.

What they run is imported when they run, so that ``paceline --help`` loads no Ray.
"""

from enum import Enum
from typing import Annotated

import typer

_DEFAULT_CONFIG = "local-cpu"
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}
_Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="GCS of the Ray cluster. Default: RAY_ADDRESS, or the Ray of this machine."),
]


class Switch(Enum):
    """What an operator may say of speculation."""

    OFF = "off"
    AUTO = "auto"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line's root."""
    app.command("serve")(serve)
    app.command("demo")(demo)
    app.command("status")(status)
    app.command("drain")(drain)
    app.command("speculation")(speculation)
    app.command("train-on-ray", context_settings=_PASSED_ON)(train_on_ray)


def serve(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped one.")] = _DEFAULT_CONFIG,
    *,
    model: Annotated[str | None, typer.Option(metavar="FOLDER_OR_ID", help="Name, folder or hub id.")] = None,
    revision: Annotated[str | None, typer.Option(help="Commit, tag or branch of a hub id.")] = None,
    drafter: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD[:MODEL]|CLASS", help="The only drafter group, as package.module:Class too; 'none' for none."
        ),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Engine of the targets.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of the REST API.")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="Port of the gRPC API.")] = None,
    address: Annotated[
        str | None, typer.Option(metavar="http://HEAD:8265", help="Deploy to this Ray cluster instead.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print addresses as one JSON object.")] = False,
) -> None:
    """Run Paceline on this machine until Ctrl-C, or deploy it to a Ray cluster."""
    from paceline.config.load import load_config  # noqa: PLC0415
    from paceline.config.locate import find_config  # noqa: PLC0415
    from paceline_serve.serve_flags import ServeFlags, check_sources_elsewhere, with_flags  # noqa: PLC0415

    flags = ServeFlags(model, revision, drafter, engine, http_port, grpc_port)
    if address is not None:
        check_sources_elsewhere(flags)
    settings = with_flags(load_config(find_config(config)), flags)
    if address is None:
        from paceline_serve.serve_command import serve_here  # noqa: PLC0415

        serve_here(settings, as_json=as_json)
    else:
        from paceline_serve.remote_deploy import deploy_remote  # noqa: PLC0415

        deploy_remote(settings, address, as_json=as_json)


def demo(
    max_tokens: Annotated[int, typer.Option(min=16, max=512, help="Length of the answer.")] = 96,
) -> None:
    """Start Paceline, answer one question with speculation off and on, compare, and stop it again."""
    from paceline_serve.demo import run_demo  # noqa: PLC0415

    raise typer.Exit(run_demo(max_tokens=max_tokens))


def status(
    *,
    address: _Address = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh each second until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; with --watch one a second.")] = False,
) -> None:
    """Show what the fleet is doing; exit code 1 if something is wrong with it."""
    from paceline_serve.status_command import show_status  # noqa: PLC0415

    raise typer.Exit(show_status(address, watch=watch, as_json=as_json))


def drain(
    replica: Annotated[str, typer.Argument(help="Id of a target or drafter, or its beginning; see `paceline status`.")],
    *,
    address: _Address = None,
    wait: Annotated[bool, typer.Option(help="Wait until the replica has gone.")] = True,
) -> None:
    """Take a replica out of the fleet; its answers go on elsewhere, and Ray Serve starts another one in its place."""
    from paceline_serve.drain_command import drain as drain_one  # noqa: PLC0415

    raise typer.Exit(drain_one(address, replica, wait=wait))


def speculation(
    mode: Annotated[Switch, typer.Argument(help="off: decode plainly; auto: speculate where it pays.")],
    *,
    group: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this drafter group; may be repeated.")
    ] = None,
    address: _Address = None,
) -> None:
    """Turn speculation off or back on while the fleet runs, in answers that run too; nothing is restarted."""
    from paceline_serve.speculation_command import switch_speculation  # noqa: PLC0415

    raise typer.Exit(switch_speculation(address, on=mode is Switch.AUTO, groups=group or []))


def train_on_ray(
    context: typer.Context,
    *,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train together.")] = 1,
    gpu: Annotated[bool, typer.Option("--gpu/--cpu", help="A GPU for each, or CPUs.")] = True,
    address: _Address = None,
) -> None:
    """Train a head with several processes of a Ray cluster: `paceline train-on-ray --workers 4 eagle DATA -o HEAD`.

    What follows is what `paceline train` takes. All nodes must see its files at the same paths.
    """
    from paceline_serve.train_command import train  # noqa: PLC0415

    train(context.args, num_workers=workers, use_gpu=gpu, address=address)
