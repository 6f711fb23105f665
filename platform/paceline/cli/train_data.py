"""``paceline train pack``: training data small enough for a repository, with proof of what is not in it."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.errors import ConfigError

app = typer.Typer()


@app.command()
def pack(
    data: Annotated[
        list[Path], typer.Argument(help="Files to read: of `paceline train generate`, of chats as text, or packed.")
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The packed file; its name ends in .xz.")],
    model: Annotated[str, typer.Option(help="The target that wrote the answers.")] = "smollm2-135m",
    drop_loops: Annotated[bool, typer.Option(help="Leave out answers that repeat themselves.")] = False,
    exclude: Annotated[
        list[Path] | None, typer.Option(help="JSON lines with prompts never to train on, besides the bench's own.")
    ] = None,
    most_bytes: Annotated[int, typer.Option(min=1, help="Largest file.")] = 10_000_000,
) -> None:
    """Pack dialogues into one small file, and write beside it a manifest with a hash of every question."""
    from paceline.cli.train import exclusion_of  # noqa: PLC0415  # it mounts this command
    from paceline.modeling.loader import load_config  # noqa: PLC0415  # lazy, as in all commands
    from paceline.modeling.resolve import resolve_model  # noqa: PLC0415
    from paceline.text.tokenizer import TextTokenizer  # noqa: PLC0415
    from paceline.training import manifest  # noqa: PLC0415
    from paceline.training.corpus import PACKED_SUFFIX, UserTurn, read_corpus  # noqa: PLC0415
    from paceline.training.packed import pack as pack_dialogues  # noqa: PLC0415

    if output.suffix != PACKED_SUFFIX:
        raise ConfigError(f"'{output.name}': a packed file's name ends in {PACKED_SUFFIX}.")
    folder = resolve_model(model)
    tokenizer = TextTokenizer.load(folder, vocab_size=load_config(folder).vocab_size)
    user_turn = UserTurn(tokenizer)
    found = read_corpus(data, tokenizer, drop_loops=drop_loops)
    dialogues = manifest.without_excluded(found, user_turn, exclusion_of(exclude or []))
    packed = pack_dialogues(dialogues, tokenizer.vocabulary, most_bytes=most_bytes)
    made = manifest.make_manifest(
        dialogues, packed, model=model, vocabulary=tokenizer.vocabulary.fingerprint, user_turn=user_turn
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(packed)
    manifest.write_manifest(made, manifest.manifest_path(output))
    say = Console(stderr=True)
    say.print(
        f"{made.size.dialogues} dialogues, {made.size.answer_tokens} tokens of answers, {made.num_bytes} bytes; "
        f"{len(found) - len(dialogues)} left out as excluded."
    )
