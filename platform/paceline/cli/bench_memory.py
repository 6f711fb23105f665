"""``paceline bench memory``: whether resident memory stays what it is."""

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.bench_output import AsJson, Output, check_outputs, deliver, say

if TYPE_CHECKING:
    from paceline.bench.memory_bench import MemorySetup
    from paceline.bench.report import Result


def measure_memory(
    *,
    in_process: Annotated[
        str | None, typer.Option(metavar="CONFIG|MODEL", help="Default: a tiny random model with an n-gram drafter.")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = 10_000,
    base_after: Annotated[int, typer.Option(min=1, help="Requests after which memory should not grow.")] = 500,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 0,
    most_growth: Annotated[float, typer.Option(help="Exit code 1 beyond this share.")] = 0.05,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Send many short requests, one in ten abandoned half way, to an engine in this process; watch resident memory."""
    from paceline.bench.memory_bench import MemorySetup  # noqa: PLC0415  # lazy, as in all commands
    from paceline.bench.random_model import save_random_model  # noqa: PLC0415

    check_outputs(output)
    setup = MemorySetup(requests=requests, base_after=base_after, concurrency=concurrency, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(_run(in_process or str(save_random_model(Path(folder))), setup))
    deliver(result, output, as_json=as_json)
    if result.data["growth"] > most_growth:
        raise typer.Exit(1)


async def _run(name: str, setup: "MemorySetup") -> "Result":
    from paceline.bench.engine_endpoint import EngineEndpoint, in_process_config  # noqa: PLC0415  # lazy, as above
    from paceline.bench.memory_bench import run_memory_bench  # noqa: PLC0415

    endpoint = EngineEndpoint.start(in_process_config(name))
    try:
        return await run_memory_bench(endpoint.backend, setup, config=await endpoint.describe(), say=say)
    finally:
        await endpoint.close()
