"""``paceline train draft-model``: a small model cut from the target's first layers, taught to predict as it does."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from paceline.cli.train_head import (
    BatchTokens,
    CheckEvery,
    Data,
    DropLoops,
    Epochs,
    Features,
    HybridFrom,
    Model,
    MostTokens,
    Patience,
    Rate,
    Threads,
    Vocabulary,
    VocabularyOf,
    Work,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from paceline.training.loop import Progress as TrainingProgress

app = typer.Typer()


@app.command("draft-model")
def draft_model(
    data: Data,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the draft model.")],
    work: Work = None,
    features: Features = None,
    model: Model = "smollm2-135m",
    start: Annotated[Path | None, typer.Option(help="A trained draft model to begin with.")] = None,
    layers: Annotated[int, typer.Option(min=1, help="Layers that are kept of the target.")] = 2,
    vocabulary: Vocabulary = 8192,
    vocabulary_of: VocabularyOf = None,
    epochs: Epochs = 3,
    learning_rate: Rate = 2e-3,
    batch_tokens: BatchTokens = 4096,
    hybrid_from: HybridFrom = 0.4,
    check_every: CheckEvery = 100,
    patience: Patience = 6,
    drop_loops: DropLoops = True,
    most_tokens: MostTokens = None,
    whole: Annotated[bool, typer.Option(help="Write embedding, head and tokenizer too.")] = False,
    threads: Threads = 2,
    seed: Annotated[int, typer.Option(help="Of the order of the data.")] = 0,
) -> None:
    """Train a draft model on what its target wrote. Interrupted and started again it goes on where it was."""
    import torch  # noqa: PLC0415  # lazy, as in all commands

    from paceline.bench.provenance import command_line  # noqa: PLC0415
    from paceline.training.loop import LoopOptions  # noqa: PLC0415
    from paceline.training.make_draft_model import DraftModelJob, make_draft_model  # noqa: PLC0415

    torch.set_num_threads(threads)
    job = DraftModelJob(
        data=tuple(data),
        output=output,
        work=work or output.with_name(output.name + ".work"),
        features=features,
        model=model,
        start=start,
        layers=layers,
        vocabulary=vocabulary,
        vocabulary_of=vocabulary_of,
        drop_loops=drop_loops,
        most_tokens=most_tokens,
        whole=whole,
        command=command_line(sys.argv),
    )
    options = LoopOptions(
        epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        hybrid_from=hybrid_from,
        check_every=check_every,
        patience=patience,
        seed=seed,
    )
    with _bar() as bar:
        task = bar.add_task("features of the target", total=None)
        make_draft_model(job, options, _shower(bar), lambda done, all_: bar.update(task, completed=done, total=all_))


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
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
