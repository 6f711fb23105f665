"""One forward pass over tokens of many sequences."""

from collections.abc import Sequence

import torch

from paceline.kvcache.page_pool import PagePool
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.loader import LoadedModel
from paceline.modeling.step_meta import StepMeta

# A linear layer takes another code path for fewer rows, with other last bits: a pass is padded to
# this many tokens, and its head to as many logits.
MIN_ROWS = 4


class ModelRunner:
    """Runs a model over paged KV; prefill chunks, decodes and drafts go into one flat batch.

    The pool hands out pages, the runner fills them. Not thread-safe.
    """

    def __init__(self, loaded: LoadedModel, *, num_pages: int, page_size: int) -> None:
        self.loaded = loaded
        self.pool = PagePool(num_pages, page_size)
        self.num_forwards = 0
        self._device = torch.device(loaded.device)
        self._store = KVStore(
            loaded.num_layers,
            num_pages * page_size,
            num_kv_heads=loaded.num_kv_heads,
            head_dim=loaded.head_dim,
            dtype=loaded.dtype,
            device=self._device,
        )

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return self.loaded.vocab_size

    @property
    def context_length(self) -> int:
        """Most tokens of one sequence."""
        return self.loaded.context_length

    @torch.inference_mode()
    def forward(self, rows: Sequence[ForwardRow]) -> torch.Tensor:
        """Logits ``[sum of num_logits, vocab]`` in float32, in the order of ``rows``.

        Writes the K/V of every token. Each row has at least one token, at most ``num_logits`` of them
        are wanted, and no slot may belong to two rows.
        """
        self.num_forwards += 1
        step = StepMeta(rows, self._store, page_size=self.pool.page_size, device=self._device)
        token_ids = [token_id for row in rows for token_id in row.token_ids]
        positions = [position for row in rows for position in range(row.start, row.start + len(row.token_ids))]
        padding = [0] * max(0, MIN_ROWS - len(token_ids))
        wanted = _wanted(rows)
        kept = wanted + wanted[-1:] * max(0, MIN_ROWS - len(wanted)) if wanted else []
        output = self.loaded.model(
            input_ids=self._tensor(token_ids + padding).unsqueeze(0),
            position_ids=self._tensor(positions + padding).unsqueeze(0),
            use_cache=False,
            step=step,
            logits_to_keep=self._tensor(kept),
        )
        logits: torch.Tensor = output.logits
        return logits[0, : len(wanted)].float()

    @torch.inference_mode()
    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy K/V between slots, given as (source, target); see `KVStore.move`."""
        self._store.move(moves)

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _wanted(rows: Sequence[ForwardRow]) -> list[int]:
    """Flat indices of the tokens whose logits are wanted."""
    wanted: list[int] = []
    end = 0
    for row in rows:
        end += len(row.token_ids)
        wanted.extend(range(end - row.num_logits, end))
    return wanted
