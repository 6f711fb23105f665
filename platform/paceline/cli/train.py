"""``paceline train``: makes drafters for a target."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from paceline.cli.train_card import app as card_app
from paceline.cli.train_data import app as data_app
from paceline.cli.train_draft_model import app as draft_model_app
from paceline.cli.train_evaluate import app as evaluate_app
from paceline.cli.train_head import app as head_app
from paceline.cli.train_tree import app as tree_app
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.backends.native import NativeBackend
    from paceline.config.schema import DeploymentConfig
    from paceline.text.tokenizer import TextTokenizer
    from paceline.training.exclusion import Exclusion
    from paceline.training.generate import GenerateOptions

app = typer.Typer(help="Make drafters for a target: data, training, evaluation.", no_args_is_help=True)
app.add_typer(data_app)
app.add_typer(draft_model_app)
app.add_typer(head_app)
app.add_typer(tree_app)
app.add_typer(evaluate_app)
app.add_typer(card_app)

_PROMPT_TOKENS = 256  # room in the KV cache for each question, beside its answer


@app.command()
def generate(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of answers; it goes on where it ends.")],
    model: Annotated[str, typer.Option(help="The target: a name, a folder or a hub id.")] = "smollm2-135m",
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16 or float16: the precision that will be served.")
    ] = "bfloat16",
    prompts: Annotated[
        Path | None, typer.Option(help="JSON lines with 'user' or 'prompt'. Default: the model makes questions up.")
    ] = None,
    exclude: Annotated[
        list[Path] | None, typer.Option(help="JSON lines with prompts never to train on, besides the bench's own.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of answers in the file at the end.")] = 1_000_000,
    temperature: Annotated[list[float] | None, typer.Option(min=0, help="By turns. Default: 0 and 1.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 320,
    concurrent: Annotated[int, typer.Option(min=1, max=1024, help="Answers at a time.")] = 128,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the arithmetic on CPU.")] = 2,
    seed: Annotated[int, typer.Option(help="Of questions and answers.")] = 0,
) -> None:
    """Let the target write answers to train on, through the engine that serves it."""
    from paceline.config.schema import DeploymentConfig, EngineConfig, ModelConfig  # noqa: PLC0415  # lazy, as in all commands
    from paceline.training.generate import GenerateOptions  # noqa: PLC0415

    temperatures = tuple(temperature or (0.0, 1.0))
    engine = EngineConfig(
        max_running=concurrent,
        max_waiting=2 * concurrent,
        kv_cache_tokens=concurrent * (max_tokens + _PROMPT_TOKENS),
        step_tokens=1024,
        threads=threads,
    )
    config = DeploymentConfig(model=ModelConfig.model_validate({"source": model, "dtype": dtype}), engine=engine)
    options = GenerateOptions(tokens, temperatures, max_tokens, concurrent, seed)
    output.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_generate(config, prompts, exclusion_of(exclude or []), output, options))


async def _generate(
    config: "DeploymentConfig", prompts: Path | None, exclusion: "Exclusion", output: Path, options: "GenerateOptions"
) -> None:
    from paceline.training.generate import AnswerWriter, generate_answers  # noqa: PLC0415  # lazy, as in all commands
    from paceline.training.user_turns import FileTurns, OwnTurns  # noqa: PLC0415

    backend, tokenizer = _start(config)
    writer = AnswerWriter(backend, tokenizer, options)
    turns = FileTurns(prompts, exclusion) if prompts else OwnTurns(tokenizer, writer.complete, exclusion)
    try:
        with _bar() as bar:
            task = bar.add_task("tokens", total=options.num_tokens)
            await generate_answers(writer, turns, output, options, lambda count: bar.advance(task, count))
    finally:
        await backend.close()


def _start(config: "DeploymentConfig") -> "tuple[NativeBackend, TextTokenizer]":
    from paceline.backends.native import NativeBackend  # noqa: PLC0415  # lazy, as in all commands
    from paceline.modeling.loader import load_config  # noqa: PLC0415
    from paceline.modeling.resolve import resolve_model  # noqa: PLC0415
    from paceline.text.tokenizer import TextTokenizer  # noqa: PLC0415

    folder = resolve_model(config.model.source, config.model.revision)
    tokenizer = TextTokenizer.load(folder, vocab_size=load_config(folder).vocab_size)
    if not tokenizer.has_chat_template:
        raise ConfigError(f"'{config.model.source}' has no chat template; drafters are trained on chats.")
    return NativeBackend.start(folder, config=config, drafters={}), tokenizer


def exclusion_of(files: list[Path]) -> "Exclusion":
    """What must not be trained on: the bench's own prompts, and those of ``files``. Raises ConfigError."""
    from paceline.bench.prompts import DEFAULT_PROMPTS, load_prompts  # noqa: PLC0415  # lazy, as in all commands
    from paceline.training.exclusion import Exclusion, excluded_texts  # noqa: PLC0415

    own = [prompt.prompt for prompt in load_prompts(DEFAULT_PROMPTS)]
    return Exclusion([*own, *(text for file in files for text in excluded_texts(file))])


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
