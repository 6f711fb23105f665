"""Commands that need Ray; mounted into ``paceline`` through the entry point group ``paceline.commands``.

What they run is imported when they run, so that ``paceline --help`` loads no Ray.
"""

from typing import Annotated

import typer

_DEFAULT_CONFIG = "local-cpu"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line's root."""
    app.command("serve")(serve)
    app.command("demo")(demo)


def serve(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped one.")] = _DEFAULT_CONFIG,
    *,
    model: Annotated[str | None, typer.Option(metavar="FOLDER_OR_ID", help="Name, folder or hub id.")] = None,
    revision: Annotated[str | None, typer.Option(help="Commit, tag or branch of a hub id.")] = None,
    drafter: Annotated[
        str | None, typer.Option(metavar="METHOD[:MODEL]", help="The only drafter group; 'none' for none.")
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
