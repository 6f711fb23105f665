"""``paceline train eagle``, ``mtp`` and ``medusa``: heads over the hidden states of a frozen target."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable

    from paceline.training.loop import Progress as TrainingProgress

app = typer.Typer()

Data = Annotated[list[Path], typer.Argument(help="Dialogues: text, generated answers, or packed.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the head.")]
Work = Annotated[
    Path | None, typer.Option(help="Folder of checkpoints and figures. Default: the output's name with .work.")
]
Features = Annotated[
    Path | None, typer.Option(help="Folder for the target's hidden states, which trainings share. Default: in --work.")
]
Model = Annotated[str, typer.Option(help="The target: a name, a folder or a hub id.")]
Start = Annotated[Path | None, typer.Option(help="A trained head to begin with, instead of the target's last layer.")]
Vocabulary = Annotated[int, typer.Option(min=64, help="Tokens that may be drafted, the most frequent ones.")]
VocabularyOf = Annotated[
    Path | None, typer.Option(help="Draft vocabulary of another drafter's folder, to share one head with it.")
]
Epochs = Annotated[int, typer.Option(min=1, help="Times that all data is seen.")]
Rate = Annotated[float, typer.Option(min=0, help="Highest one.")]
BatchTokens = Annotated[int, typer.Option(min=16, help="Tokens of one step, with padding.")]
HybridFrom = Annotated[
    float, typer.Option(min=0, max=1, help="Share of training after which acceptance is the loss, not KL alone.")
]
CheckEvery = Annotated[int, typer.Option(min=1, help="Steps between two checks on dialogues held out.")]
Patience = Annotated[int, typer.Option(min=1, help="Checks without a better result before training ends.")]
DropLoops = Annotated[bool, typer.Option(help="Leave out answers that repeat themselves.")]
MostTokens = Annotated[int | None, typer.Option(min=1, help="Use only so many tokens of answers.")]
RandomInit = Annotated[bool, typer.Option(help="Begin with random weights, to see what the target's bring.")]
Precision = Annotated[str, typer.Option(help="bfloat16 or float32: of products; sums and weights are float32.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of the arithmetic on CPU.")]
Seed = Annotated[int, typer.Option(help="Of the order of the data and of random weights.")]
Unroll = Annotated[int, typer.Option(min=1, max=8, help="Drafts in a row that are trained, on the head's own guesses.")]
NoFeature = Annotated[bool, typer.Option("--no-feature", help="Without the target's hidden state, as an ablation.")]
Unshifted = Annotated[
    bool, typer.Option("--unshifted", help="With the embedding of the token before, as an ablation; it cannot serve.")
]


@app.command()
def eagle(
    data: Data,
    *,
    output: Output,
    work: Work = None,
    features: Features = None,
    model: Model = "smollm2-135m",
    start: Start = None,
    vocabulary: Vocabulary = 8192,
    vocabulary_of: VocabularyOf = None,
    unroll: Unroll = 2,
    epochs: Epochs = 3,
    learning_rate: Rate = 2e-3,
    batch_tokens: BatchTokens = 4096,
    hybrid_from: HybridFrom = 0.4,
    check_every: CheckEvery = 100,
    patience: Patience = 6,
    drop_loops: DropLoops = True,
    most_tokens: MostTokens = None,
    random_init: RandomInit = False,
    no_feature: NoFeature = False,
    unshifted: Unshifted = False,
    precision: Precision = "bfloat16",
    threads: Threads = 2,
    seed: Seed = 0,
) -> None:
    """Train an EAGLE head: one layer over the target's hidden state and the newest token.

    Interrupted and started again it goes on where it was.
    """
    _train("eagle", locals())


@app.command()
def mtp(
    data: Data,
    *,
    output: Output,
    work: Work = None,
    features: Features = None,
    model: Model = "smollm2-135m",
    start: Start = None,
    vocabulary: Vocabulary = 8192,
    vocabulary_of: VocabularyOf = None,
    modules: Annotated[int, typer.Option(min=1, max=8, help="Modules; the last one drafts all that lies deeper.")] = 1,
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Independent heads on the target's hidden state.")
    ] = False,
    joint: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="LAMBDA",
            help="Train the target too, with this weight on the modules' loss (DeepSeek-V3: 0.3). It becomes another "
            "target, which is written with its modules.",
        ),
    ] = None,
    unroll: Unroll = 2,
    epochs: Epochs = 3,
    learning_rate: Rate = 2e-3,
    batch_tokens: BatchTokens = 4096,
    hybrid_from: HybridFrom = 0.4,
    check_every: CheckEvery = 100,
    patience: Patience = 6,
    drop_loops: DropLoops = True,
    most_tokens: MostTokens = None,
    random_init: RandomInit = False,
    no_feature: NoFeature = False,
    unshifted: Unshifted = False,
    precision: Precision = "bfloat16",
    threads: Threads = 2,
    seed: Seed = 0,
) -> None:
    """Train MTP modules as DeepSeek-V3 has them, for a target that was made without.

    Interrupted and started again it goes on where it was.
    """
    _train("mtp", locals())


@app.command()
def medusa(
    data: Data,
    *,
    output: Output,
    work: Work = None,
    features: Features = None,
    model: Model = "smollm2-135m",
    start: Start = None,
    vocabulary: Vocabulary = 8192,
    vocabulary_of: VocabularyOf = None,
    heads: Annotated[int, typer.Option(min=1, max=16, help="Heads, one a future token.")] = 4,
    epochs: Epochs = 3,
    learning_rate: Rate = 1e-2,
    batch_tokens: BatchTokens = 4096,
    hybrid_from: HybridFrom = 0.4,
    check_every: CheckEvery = 100,
    patience: Patience = 6,
    drop_loops: DropLoops = True,
    most_tokens: MostTokens = None,
    random_init: RandomInit = False,
    precision: Precision = "bfloat16",
    threads: Threads = 2,
    seed: Seed = 0,
) -> None:
    """Train Medusa heads, which draft several tokens from the newest hidden state at once.

    Interrupted and started again it goes on where it was. ``paceline train tree`` then chooses their tree.
    """
    _train("medusa", locals())


def _train(method: Literal["eagle", "mtp", "medusa"], given: dict[str, Any]) -> None:
    """Compose a training of what was given on the command line, run it, write the head and its record."""
    import torch  # noqa: PLC0415  # lazy, as in all commands

    from paceline.bench.provenance import command_line  # noqa: PLC0415
    from paceline.training.head_training import HeadTraining, HeadTrainingOptions  # noqa: PLC0415

    torch.set_num_threads(given.pop("threads"))
    output: Path = given.pop("output")
    work = given.pop("work") or output.with_name(output.name + ".work")
    options = HeadTrainingOptions(method=method, work=work, **given)
    training = HeadTraining(options)
    with _bar(shown=training.speaks) as bar:
        task = bar.add_task("features of the target", total=None)
        training.compute_features(lambda done, total: bar.update(task, completed=done, total=total))
        bar.remove_task(task)
        training.run(_shower(bar))
    if training.speaks:
        training.save(output, command=command_line(sys.argv))
        _plot(work)


def _plot(work: Path) -> None:
    from paceline.training.plots import plot_training  # noqa: PLC0415  # lazy, as in all commands

    drawn = plot_training(work)
    if drawn:
        Console(stderr=True).print(f"The course of the training: {drawn}")


def _bar(*, shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shown,
    )


def _shower(bar: Progress) -> "Callable[[TrainingProgress], None]":
    task = bar.add_task("training", total=None)
    checked = ""

    def show(progress: "TrainingProgress") -> None:
        nonlocal checked
        if progress.figures is not None:
            by_depth = " ".join(f"{share:.2f}" for share in progress.figures.accepted)
            checked = f", accepted {by_depth}, tau {progress.figures.tau:.2f}"
        bar.update(
            task, completed=progress.step, total=progress.num_steps, description=f"loss {progress.loss:.3f}{checked}"
        )

    return show
