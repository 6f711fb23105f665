"""Runs draft heads for serving: over pages, in batches of sequences, chains and trees alike."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from paceline.kvcache.page_pool import PagePool
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.head_memory import HeadMemory
from paceline.modeling.heads.compiled_head import CompiledHead, head_kernels
from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.head_output import HeadNetwork, HeadOutput
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.module_head import ModuleHead
from paceline.modeling.kv_store import KVStore
from paceline.modeling.step_meta import StepMeta


class HeadRow(NamedTuple):
    """Tokens of one sequence for the head, and the feature of each: what was computed at the token before it."""

    row: ForwardRow
    features: torch.Tensor  # [len(row.token_ids), hidden], of any floating-point type


class HeadRunner:
    """A head and its memory. Not thread-safe.

    Token 0 of a text has no feature: rows keep ``first`` at 1 or more. The runner writes K/V and leaves the flags of
    ``memory`` alone: only the caller knows which features were the target's, and which a head's own guess.
    """

    def __init__(self, head: DraftHead, memory: HeadMemory) -> None:
        """Takes over ``head``, whose weights are laid out anew where that is faster."""
        self.spec: HeadSpec = head.spec
        self.memory = memory
        self.num_forwards = 0
        self._dtype = head.target.embedding.dtype
        self._device = head.target.embedding.device
        self._network = fastest_head(head)
        ids = head.spec.draft_token_ids
        self._draft_token_ids = None if ids is None else torch.tensor(ids, device=self._device)

    @torch.inference_mode()
    def forward(self, rows: Sequence[HeadRow], depth: int = 1) -> HeadOutput:
        """One pass over all ``rows``; ``depth`` (from 1) picks the module of MTP.

        Each row has at least one token, and no slot may belong to two rows. Logits are those of the last
        ``num_logits`` tokens of each row, in order; ``hidden`` has a vector for every token.
        """
        self.num_forwards += 1
        step = StepMeta([row for row, _ in rows], self.memory.store, device=self._device)
        features = [features.to(device=self._device, dtype=self._dtype) for _, features in rows]
        return self._network.run(step, features[0] if len(features) == 1 else torch.cat(features), depth)

    def widen(self, logits: torch.Tensor) -> torch.Tensor:
        """``[..., vocab]`` from ``[..., draft vocab]``: -inf for tokens that the head cannot propose."""
        if self._draft_token_ids is None:
            return logits
        wide = logits.new_full((*logits.shape[:-1], self.spec.vocab_size), float("-inf"))
        return wide.index_copy_(-1, self._draft_token_ids, logits)


def fastest_head(head: DraftHead) -> HeadNetwork:
    """The fastest way to run ``head`` where its target's embedding lies."""
    kernels = head_kernels(head)
    return ModuleHead(head) if kernels is None else CompiledHead(head, kernels)


def head_store(head: DraftHead, pool: PagePool) -> KVStore:
    """Room for the head's K/V in every slot of ``pool``."""
    spec, embedding = head.spec, head.target.embedding
    return KVStore(
        spec.num_kv_layers,
        pool.num_pages * pool.page_size,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        dtype=embedding.dtype,
        device=embedding.device,
    )
