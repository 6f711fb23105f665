"""``paceline bench``: measure, with provenance."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.bench.endpoint import Api
from paceline.cli import bench_gpu, bench_memory, bench_pass
from paceline.cli.bench_output import AsJson, Output, check_outputs, deliver, say
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench.endpoint import Endpoint
    from paceline.bench.prompts import BenchPrompt
    from paceline.bench.report import Result
    from paceline.bench.run import RunSetup
    from paceline.bench.variants import Variant

app = typer.Typer(help="Measure latency, speed and acceptance.", no_args_is_help=True)
app.command("pass")(bench_pass.measure_passes)
app.command("gpu")(bench_gpu.measure_device)
app.command("memory")(bench_memory.measure_memory)


@dataclass(frozen=True, slots=True)
class Where:
    """Whom to ask; exactly one of the first three is set."""

    in_process: str | None
    http: str | None
    grpc: str | None
    api: Api
    model: str | None
    api_key: str | None


@app.command()
def run(
    *,
    in_process: Annotated[
        str | None, typer.Option(metavar="CONFIG|MODEL", help="The native engine alone, in this process.")
    ] = None,
    http: Annotated[str | None, typer.Option(metavar="URL", help="Any OpenAI-compatible endpoint.")] = None,
    grpc: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Paceline's gRPC API.")] = None,
    api: Annotated[Api, typer.Option(help="With --http: which API.")] = Api.CHAT,
    model: Annotated[str | None, typer.Option(help="Served model, where there are several.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Bearer token, with --http.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Closed loop: requests at a time.")] = 1,
    rate: Annotated[float | None, typer.Option(help="Open loop: Poisson arrivals per second.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Open loop: JSON lines with at_s and lengths.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="JSON lines with category and prompt.")] = None,
    category: Annotated[list[str] | None, typer.Option(help="Only prompts of this category.")] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Per block. Default: each prompt once.")] = None,
    blocks: Annotated[int, typer.Option(min=1, help="Blocks; a comparison needs 5 or more.")] = 5,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="Where a variant names none.")] = 0.0,
    a: Annotated[str, typer.Option(help="Options of side a, such as speculation=off.")] = "",
    b: Annotated[
        list[str] | None, typer.Option(help="Options of a side to compare with a; may be repeated: b, c, ...")
    ] = None,
    slo_ttft_ms: Annotated[float | None, typer.Option(help="Goodput: longest time to the first token.")] = None,
    slo_tpot_ms: Annotated[float | None, typer.Option(help="Goodput: longest time per token after it.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Uncounted requests. Default: each prompt once.")] = None,
    timeout_s: Annotated[float, typer.Option(help="A request without its end by then has failed.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Of arrivals, order of blocks and answers.")] = 0,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Send load and measure what a client sees: TTFT, TPOT, ITL, tokens/s, goodput, acceptance.

    With --b all sides answer the same questions in interleaved blocks. Exit code 1 if every request failed.
    """
    # Lazy, as in all commands: these load torch.
    from paceline.bench.load import read_trace  # noqa: PLC0415
    from paceline.bench.measure import Slo  # noqa: PLC0415
    from paceline.bench.run import RunSetup, check_setup  # noqa: PLC0415

    check_outputs(output, pictures=True)
    setup = RunSetup(
        prompts=_prompts(prompts, category),
        variants=_variants(a, b or (), temperature),
        blocks=blocks,
        requests=requests,
        concurrency=concurrency,
        rate_per_s=rate,
        trace=read_trace(trace) if trace else (),
        max_tokens=max_tokens,
        warmup=warmup,
        timeout_s=timeout_s,
        seed=seed,
        slo=Slo(_seconds(slo_ttft_ms), _seconds(slo_tpot_ms)),
    )
    check_setup(setup)
    result = asyncio.run(_run(Where(in_process, http, grpc, api, model, api_key), setup))
    deliver(result, output, as_json=as_json)
    if not any(side["load"]["completed"] for side in result.data["variants"].values()):
        raise typer.Exit(1)


async def _run(where: Where, setup: "RunSetup") -> "Result":
    from paceline.bench.run import run_benchmark  # noqa: PLC0415  # lazy, as above

    endpoint = await _open(where, setup)
    try:
        return await run_benchmark(endpoint, setup, say)
    finally:
        await endpoint.close()


async def _open(where: Where, setup: "RunSetup") -> "Endpoint":
    if sum(value is not None for value in (where.in_process, where.http, where.grpc)) != 1:
        raise ConfigError("Say whom to ask with exactly one of --in-process, --http and --grpc.")
    if where.in_process is not None:
        from paceline.bench.engine_endpoint import EngineEndpoint, in_process_config  # noqa: PLC0415  # lazy, as above

        return EngineEndpoint.start(in_process_config(where.in_process))
    if where.grpc is not None:
        from paceline.bench.grpc_endpoint import GrpcEndpoint  # noqa: PLC0415  # lazy, as above

        return GrpcEndpoint(where.grpc, model=where.model)
    from paceline.bench.http_endpoint import HttpEndpoint  # noqa: PLC0415  # lazy, as above

    endpoint = await HttpEndpoint.connect(
        str(where.http),
        api=where.api,
        model=where.model,
        api_key=where.api_key,
    )
    if not endpoint.is_paceline and any(variant.asks_for_speculation for variant in setup.variants):
        await endpoint.close()
        raise ConfigError("This server is not Paceline: it knows no speculation, drafter or max_draft_tokens.")
    return endpoint


def _prompts(path: Path | None, categories: Sequence[str] | None) -> "list[BenchPrompt]":
    from paceline.bench.prompts import DEFAULT_PROMPTS, load_prompts  # noqa: PLC0415  # lazy, as above

    chosen = load_prompts(path or DEFAULT_PROMPTS)
    return [prompt for prompt in chosen if not categories or prompt.category in categories]


def _variants(a: str, others: Sequence[str], temperature: float) -> "list[Variant]":
    from paceline.bench.variants import parse_variant  # noqa: PLC0415  # lazy, as above

    if len(others) >= len(ascii_lowercase):
        raise ConfigError(f"--b is given {len(others)} times; there are names for {len(ascii_lowercase) - 1} sides.")
    sides = zip(ascii_lowercase, (a, *others), strict=False)
    return [parse_variant(name, text, temperature=temperature) for name, text in sides]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
