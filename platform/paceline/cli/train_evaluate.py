"""``paceline train evaluate``: how many drafts of each drafter its target accepts."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from paceline.cli.bench_output import AsJson, Output, check_outputs, deliver, say
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench.endpoint import Endpoint
    from paceline.bench.report import Result
    from paceline.config.schema import DeploymentConfig
    from paceline.training.evaluate import EvaluationSetup
    from paceline.training.record import TrainingRecord

app = typer.Typer()

_PROMPT_TOKENS = 1536  # room in the KV cache for each prompt


class _Where(NamedTuple):
    """Whom to ask: a config whose engine runs in this process, or the address of a running deployment."""

    config: "DeploymentConfig | None"
    grpc: str | None
    model: str | None


@app.command()
def evaluate(
    config: Annotated[
        str | None, typer.Argument(metavar="[CONFIG]", help="Config with the drafters; all of them in this process.")
    ] = None,
    *,
    grpc: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A running deployment instead, with remote drafters.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --grpc: served model, where there are several.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Drafter group; may be repeated. Default: all.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="Drafts a round: 5 for chains, 16x4 for trees of 16 with 4 alternatives. Default: 5."),
    ] = None,
    temperature: Annotated[list[float] | None, typer.Option(min=0, help="May be repeated. Default: 0 and 1.")] = None,
    prompts: Annotated[
        list[Path] | None, typer.Option(help="JSON lines with 'prompt' or 'turns'. Default: the bench's own.")
    ] = None,
    per_category: Annotated[int | None, typer.Option(min=1, help="Only the first prompts of each category.")] = None,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longest answer.")] = 128,
    concurrency: Annotated[int, typer.Option(min=1, help="Answers at a time; it changes no draft.")] = 8,
    baseline: Annotated[str | None, typer.Option(help="Group that the others are compared with.")] = None,
    seed: Annotated[int, typer.Option(help="Of answers and intervals.")] = 0,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure acceptance by position, and tokens per pass, through the verifiers and the engine that serve.

    Trained drafters of several data sizes in one config give a curve over the data. Looping answers stand apart.
    """
    from paceline.bench.engine_endpoint import in_process_config  # noqa: PLC0415  # lazy, as in all commands
    from paceline.bench.prompts import DEFAULT_PROMPTS  # noqa: PLC0415
    from paceline.training.evaluate import EvaluationSetup, evaluation_config, read_budget, read_prompts  # noqa: PLC0415

    check_outputs(output)
    if (config is None) == (grpc is None):
        raise ConfigError("Say whom to ask: a config, or a running deployment with --grpc.")
    found = in_process_config(config) if config else None
    if found:
        found = evaluation_config(found, concurrency=concurrency, room_tokens=max_tokens + _PROMPT_TOKENS)
    setup = EvaluationSetup(
        sets=[read_prompts(path, per_category=per_category) for path in prompts or (DEFAULT_PROMPTS,)],
        groups=_groups(found, group, baseline),
        budgets=[read_budget(text) for text in budget or (["5"] if found else [])],
        temperatures=temperature or [0.0, 1.0],
        max_tokens=max_tokens,
        concurrency=concurrency,
        seed=seed,
    )
    result = asyncio.run(_run(_Where(found, grpc, model), setup, baseline))
    deliver(result, output, as_json=as_json)


async def _run(where: _Where, setup: "EvaluationSetup", baseline: str | None) -> "Result":
    from paceline.bench.provenance import collect_provenance  # noqa: PLC0415  # lazy, as above
    from paceline.training.evaluate import evaluate as evaluate_groups  # noqa: PLC0415
    from paceline.training.evaluation_report import evaluation_result  # noqa: PLC0415

    before = collect_provenance(config={}, seed=setup.seed)
    records = _records(where.config, setup.groups) if where.config else {}
    endpoint = _open(where)
    try:
        cells = await evaluate_groups(endpoint, setup, say)
        provenance = replace(before, config=await endpoint.describe())
    finally:
        await endpoint.close()
    return evaluation_result(cells, setup, provenance=provenance, records=records, baseline=baseline)


def _open(where: _Where) -> "Endpoint":
    if where.config is not None:
        from paceline.bench.engine_endpoint import EngineEndpoint  # noqa: PLC0415  # lazy, as above

        return EngineEndpoint.start(where.config)
    from paceline.bench.grpc_endpoint import GrpcEndpoint  # noqa: PLC0415  # lazy, as above

    return GrpcEndpoint(str(where.grpc), model=where.model)


def _groups(config: "DeploymentConfig | None", named: Sequence[str] | None, baseline: str | None) -> list[str]:
    """The groups to ask. Raises ConfigError for one that the config lacks, and for none."""
    known = list(config.drafters) if config else None
    groups = list(named or known or ())
    if not groups:
        raise ConfigError("Name the drafter groups of the deployment with --group.")
    for group in (*groups, *([baseline] if baseline else [])):
        if known is not None and group not in known:
            raise ConfigError(f"The config has no drafter group '{group}'; it has {', '.join(known)}.")
    if baseline and baseline not in groups:
        raise ConfigError(f"--baseline {baseline} is not among the groups that are asked: {', '.join(groups)}.")
    return groups


def _records(config: "DeploymentConfig", groups: Sequence[str]) -> "Mapping[str, TrainingRecord]":
    """Records of the trainings that made the drafters, where there are any."""
    from paceline.training.record import record_of_model  # noqa: PLC0415  # lazy, as above

    found = {group: record_of_model(config.drafters[group].model) for group in groups}
    return {group: record for group, record in found.items() if record}
