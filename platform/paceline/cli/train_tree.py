"""``paceline train tree``: the static tree of Medusa heads, from how often each of their choices is right."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.errors import ConfigError

app = typer.Typer()


@app.command()
def tree(
    heads: Annotated[Path, typer.Argument(help="Folder of Medusa heads; the tree is written into it.")],
    data: Annotated[list[Path], typer.Argument(help="Dialogues; those held out from training are used.")],
    *,
    model: Annotated[str, typer.Option(help="The target: a name, a folder or a hub id.")] = "smollm2-135m",
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Most nodes of the tree.")] = 64,
    ranks: Annotated[int, typer.Option(min=1, max=32, help="Choices of each head that are looked at.")] = 10,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of answers to measure on.")] = 20_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the arithmetic on CPU.")] = 2,
) -> None:
    """Measure the heads on greedy answers, and write the tree whose paths are most often right, best first."""
    import torch  # noqa: PLC0415  # lazy, as in all commands

    from paceline.modeling.heads.checkpoint import load_head  # noqa: PLC0415
    from paceline.modeling.heads.medusa_head import MedusaHead  # noqa: PLC0415
    from paceline.modeling.loader import load_config  # noqa: PLC0415
    from paceline.modeling.resolve import resolve_model  # noqa: PLC0415
    from paceline.text.tokenizer import TextTokenizer  # noqa: PLC0415
    from paceline.training.corpus import first_tokens, held_out, read_corpus  # noqa: PLC0415
    from paceline.training.teacher import ModelTeacher  # noqa: PLC0415
    from paceline.training.tree import best_tree, rank_accuracies, write_tree  # noqa: PLC0415

    torch.set_num_threads(threads)
    folder = resolve_model(model)
    teacher = ModelTeacher(folder)
    found = load_head(heads, teacher.weights)
    if not isinstance(found, MedusaHead):
        raise ConfigError(f"{heads} holds {found.spec.method} heads; only Medusa has a static tree.")
    tokenizer = TextTokenizer.load(folder, vocab_size=load_config(folder).vocab_size)
    _, checked = held_out(read_corpus(data, tokenizer, drop_loops=True))
    greedy = [dialogue for dialogue in checked if dialogue.temperature == 0]
    if not greedy:
        raise ConfigError("None of the dialogues held out is greedy: generate some with --temperature 0.")
    shares = rank_accuracies(
        found.float(),
        teacher,
        first_tokens(greedy, tokens),
        num_ranks=min(ranks, found.spec.draft_vocab_size),
        draft_token_ids=found.spec.draft_token_ids,
    )
    made = best_tree(shares, nodes=nodes)
    write_tree(made, heads)
    first = ", ".join(f"{of_head[0]:.2f}" for of_head in shares)
    Console(stderr=True).print(
        f"First choices are right {first} of the time; {len(made.paths)} paths, {made.expected:.2f} drafts accepted a "
        "round if heads were right independently."
    )
