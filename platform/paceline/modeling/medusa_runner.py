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
        logits = torch.empty(len(self._blocks), len(features), self._outputs[0].columns)
        threads = torch.get_num_threads()
        for block, output, row in zip(self._blocks, self._outputs, logits, strict=True):
            hidden = features
            for layer in block:
                inner = torch.empty_like(hidden)
                layer.apply(self._kernels, hidden, inner, Epilogue.PLAIN, threads=threads)
                hidden = hidden + silu(inner)
            output.apply(self._kernels, hidden, row, Epilogue.WIDEN, threads=threads)
        return logits


def _packs(head: MedusaHead) -> bool:
    embedding = head.target.embedding
    linears = [module for module in head.modules() if isinstance(module, torch.nn.Linear)]
    return embedding.is_cpu and embedding.dtype in PACKABLE and all(map(packable, linears))


def _packed_outputs(head: MedusaHead) -> list[PackedWeight]:
    """One for each head."""
    dtype, count = head.target.embedding.dtype, head.spec.num_modules
    if len(head.lm_heads) == count:
        return [PackedWeight([head.output_weight(index, dtype).detach()]) for index in range(count)]
    if not len(head.lm_heads) and head.spec.draft_token_ids is None and head.target.packed_output is not None:
        return [head.target.packed_output] * count
    return [PackedWeight([head.output_weight(0, dtype).detach()])] * count
