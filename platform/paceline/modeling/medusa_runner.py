"""Runs Medusa heads for serving: no memory, one feature of each sequence at a time."""

import ctypes

import torch
from torch.nn.functional import silu

from paceline.kernels.decoder_layers import Epilogue, decoder_kernels
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.medusa_head import MedusaHead
from paceline.modeling.packed_weight import PACKABLE, PackedWeight, packable


class MedusaRunner:
    """All heads on the newest features of many sequences. Not thread-safe."""

    def __init__(self, head: MedusaHead) -> None:
        """Takes over ``head``, whose weights are laid out anew where that is faster."""
        self.spec: HeadSpec = head.spec
        self._dtype = head.target.embedding.dtype
        self._device = head.target.embedding.device
        self._head = head.requires_grad_(requires_grad=False)
        kernels = decoder_kernels() if _packs(head) else None
        self._packed = None if kernels is None else _PackedMedusa(head, kernels)

    @property
    def device(self) -> torch.device:
        """Where logits are computed."""
        return self._device

    @torch.inference_mode()
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[heads, n, draft vocab]`` in float32 of ``features`` ([n, hidden]).

        Head k (from 0) predicts the token k + 1 places after the newest known one, whose feature this is.
        """
        features = features.to(device=self._device, dtype=self._dtype)
        if self._packed is not None:
            return self._packed.logits(features.contiguous())
        logits: torch.Tensor = self._head(features)
        return logits.float()


class _PackedMedusa:
    """Weights as the compiled product reads them; heads that share an output head share its panels."""

    def __init__(self, head: MedusaHead, kernels: ctypes.CDLL) -> None:
        self._kernels = kernels
        self._blocks = [
            [PackedWeight([layer.weight.detach()], [layer.bias]) for layer in block.layers]  # type: ignore[union-attr]
            for block in head.blocks
        ]
        self._outputs = _packed_outputs(head)

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """``[heads, n, draft vocab]`` float32."""
        threads = torch.get_num_threads()
        hidden = torch.stack([self._passed(block, features, threads) for block in self._blocks])
        logits = torch.empty(*hidden.shape[:2], self._outputs[0].columns)
        if len(self._outputs) == 1:  # all heads in one product: the panels are read once
            self._outputs[0].apply(self._kernels, hidden.flatten(0, 1), logits, Epilogue.WIDEN, threads=threads)
            return logits
        for output, rows, place in zip(self._outputs, hidden, logits, strict=True):
            output.apply(self._kernels, rows, place, Epilogue.WIDEN, threads=threads)
        return logits

    def _passed(self, block: list[PackedWeight], hidden: torch.Tensor, threads: int) -> torch.Tensor:
        for layer in block:
            inner = torch.empty_like(hidden)
            layer.apply(self._kernels, hidden, inner, Epilogue.PLAIN, threads=threads)
            hidden = hidden + silu(inner)
        return hidden


def _packs(head: MedusaHead) -> bool:
    embedding = head.target.embedding
    linears = [module for module in head.modules() if isinstance(module, torch.nn.Linear)]
    return embedding.is_cpu and embedding.dtype in PACKABLE and all(map(packable, linears))


def _packed_outputs(head: MedusaHead) -> list[PackedWeight]:
    """One for each head, or one for all."""
    dtype, count = head.target.embedding.dtype, max(1, len(head.lm_heads))
    if not len(head.lm_heads) and head.spec.draft_token_ids is None and head.target.packed_output is not None:
        return [head.target.packed_output]
    return [PackedWeight([head.output_weight(index, dtype).detach()]) for index in range(count)]
