"""The order in which dialogues are trained on."""

import random
from collections.abc import Iterator, Sequence

from paceline.training.corpus import Dialogue

_CHUNK = 64  # dialogues that are sorted by length among themselves


def schedule(dialogues: Sequence[Dialogue], *, epochs: int, batch_tokens: int, seed: int) -> Iterator[list[Dialogue]]:
    """The batches of all epochs, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(epochs):
        order = list(dialogues)
        draw.shuffle(order)
        # Neighbours of like length waste little on padding; the order of the batches stays random.
        chunks = (sorted(order[at : at + _CHUNK], key=len) for at in range(0, len(order), _CHUNK))
        epoch = [batch for chunk in chunks for batch in batches(chunk, batch_tokens)]
        draw.shuffle(epoch)
        yield from epoch


def batches(dialogues: Sequence[Dialogue], most_tokens: int) -> Iterator[list[Dialogue]]:
    """Dialogues in order, as many together as fit into ``most_tokens`` with their padding; at least one."""
    batch: list[Dialogue] = []
    longest = 0
    for dialogue in dialogues:
        longest = max(longest, len(dialogue))
        if batch and longest * (len(batch) + 1) > most_tokens:
            yield batch
            batch, longest = [], len(dialogue)
        batch.append(dialogue)
    if batch:
        yield batch
