"""``paceline bench gpu``: the library alone on one device."""

from typing import Annotated

import typer

from paceline.cli.bench_output import AsJson, Output, check_outputs, deliver, say
from paceline.errors import ConfigError


def measure_device(
    *,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    tiny: Annotated[bool, typer.Option("--tiny", help="A tiny shape and few points, to see that it runs.")] = False,
    limit_s: Annotated[float, typer.Option(help="What has not begun by then is left out.")] = 540.0,
    seed: Annotated[int, typer.Option(help="Of weights and drafts.")] = 0,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Random weights of Llama-8B shape in bfloat16: v(n), batches, step overhead, drafts of a given acceptance.

    No Ray, no network, no download; about 24 GB of device memory or more.
    """
    import torch  # noqa: PLC0415  # lazy, as in all commands

    from paceline.bench.gpu_bench import GpuBench, GpuSetup  # noqa: PLC0415
    from paceline.bench.random_model import TINY  # noqa: PLC0415

    check_outputs(output)
    if device not in {"cuda", "cpu"}:
        raise ConfigError(f"--device is '{device}'; it can be cuda or cpu.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("PyTorch sees no CUDA device here. Try --tiny --device cpu.")
    if not tiny:
        setup = GpuSetup(device=device, limit_s=limit_s, seed=seed)
    else:
        setup = GpuSetup(
            shape=TINY,
            device=device,
            dtype="float32" if device == "cpu" else "bfloat16",
            sizes=(1, 4),
            contexts=(16,),
            batches=(1, 2),
            batch_context=16,
            engine_batches=(1, 2),
            alphas=(0.8,),
            drafts=(2,),
            answer_tokens=24,
            repeats=2,
            limit_s=limit_s,
            seed=seed,
        )
    deliver(GpuBench(setup, say).run(), output, as_json=as_json)
