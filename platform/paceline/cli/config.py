"""``paceline config``: check and show configuration files."""

from typing import Annotated

import typer
import yaml

from paceline.config.load import load_config
from paceline.config.locate import find_config, shipped_names
from paceline.config.schema import DeploymentConfig

app = typer.Typer(help="Check and show configuration files.", no_args_is_help=True)

_File = Annotated[str, typer.Argument(metavar="FILE", help="A YAML file, or the name of a shipped config.")]


@app.command()
def validate(file: _File) -> None:
    """Check a file; every mistake is listed with its field. Draft heads that are here are held against the target."""
    from paceline.drafting.head_fit import check_heads  # noqa: PLC0415  # lazy: loads what fetches models
    from paceline.modeling.resolve import find_model  # noqa: PLC0415

    path = find_config(file)
    loaded = load_config(path)
    unseen = check_heads(loaded, find_model)
    print(f"{path} is valid: {_summary(loaded)}.")
    if unseen:
        print(f"Not held against the target, as files are not on this machine: {', '.join(unseen)}.")


@app.command()
def show(file: _File = "local-cpu") -> None:
    """Print a file with all defaults filled in, as YAML."""
    resolved = load_config(find_config(file)).model_dump(mode="json")
    print(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True), end="")


@app.command("list")
def list_shipped() -> None:
    """List the configs that ship with Paceline."""
    for name in shipped_names("configs"):
        print(name)


def _summary(loaded: DeploymentConfig) -> str:
    groups = [f"{name} ({drafter.method}, {drafter.place})" for name, drafter in loaded.drafters.items()]
    return f"model {loaded.model.served_name}, verifier {loaded.verifier}, drafters {', '.join(groups) or 'none'}"
