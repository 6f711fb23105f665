"""``paceline bench pass``: what target passes cost."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.bench_output import AsJson, Output, check_outputs, deliver, say
from paceline.errors import ConfigError

_QUICK_PROMPTS = 5
_QUICK_TOKENS = 24


def measure_passes(
    *,
    model: Annotated[str, typer.Option(help="A name, a folder or a hub id.")] = "smollm2-135m",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
    threads: Annotated[str, typer.Option(help="Thread counts to choose from.")] = "1,2",
    sizes: Annotated[str, typer.Option(help="Tokens of a pass, for v(n).")] = "1,2,4,8,16,32,64",
    context: Annotated[int, typer.Option(min=1, help="Tokens before those of the pass, for v(n).")] = 128,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer.")] = 128,
    parallel: Annotated[int, typer.Option(min=2, help="Requests at a time, compared with one.")] = 16,
    blocks: Annotated[int, typer.Option(min=5, help="Interleaved blocks.")] = 5,
    prompts: Annotated[Path | None, typer.Option(help="JSON lines with category and prompt.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order of everything.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few prompts and short answers: a minute or two.")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compare plain decoding with Transformers' generate and with bare matrix products; one with many; v(n).

    Each candidate runs in a process of its own, with its fastest number of threads.
    """
    # Lazy, as in all commands: these load torch.
    from paceline.bench.pass_bench import run_pass_bench  # noqa: PLC0415
    from paceline.bench.pass_records import PassSetup  # noqa: PLC0415
    from paceline.bench.prompts import DEFAULT_PROMPTS, load_prompts, prompt_ids  # noqa: PLC0415
    from paceline.modeling.resolve import resolve_model  # noqa: PLC0415
    from paceline.text.tokenizer import TextTokenizer  # noqa: PLC0415

    check_outputs(output)
    folder = resolve_model(model)
    tokenizer = TextTokenizer.load(folder)
    texts = [prompt.prompt for prompt in load_prompts(prompts or DEFAULT_PROMPTS)]
    token_ids = [prompt_ids(text, tokenizer) for text in (texts[:_QUICK_PROMPTS] if quick else texts)]
    setup = PassSetup(
        folder,
        token_ids,
        dtype=dtype,
        threads=_numbers(threads),
        blocks=blocks,
        num_tokens=min(tokens, _QUICK_TOKENS) if quick else tokens,
        context=context,
        sizes=_numbers(sizes),
        parallel=parallel,
        seed=seed,
    )
    deliver(run_pass_bench(setup, say), output, as_json=as_json)


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"'{text}' is no list of whole numbers such as 1,2.") from error
    if min(numbers) < 1:
        raise ConfigError(f"'{text}': every number must be at least 1.")
    return numbers
