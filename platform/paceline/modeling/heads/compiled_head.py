"""EAGLE and MTP heads on CPU by the compiled kernels of the target's own layers; see `CompiledNetwork`."""

import ctypes
from dataclasses import dataclass

import torch

from paceline.kernels.decoder_layers import Epilogue, decoder_kernels
from paceline.modeling.compiled_layer import CompiledLayer
from paceline.modeling.compiled_norm import rms_norm
from paceline.modeling.compiled_stack import CompiledStack
from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.eagle_head import EagleHead
from paceline.modeling.heads.head_output import HeadOutput
from paceline.modeling.heads.mtp_head import MtpHead
from paceline.modeling.packed_weight import PACKABLE, PackedWeight, packable
from paceline.modeling.step_meta import StepMeta


def head_kernels(head: DraftHead) -> ctypes.CDLL | None:
    """The library that can run ``head``; None for EAGLE-3, other devices and types, or without a compiler."""
    if not isinstance(head, EagleHead | MtpHead) or head.config.hidden_act != "silu":
        return None
    embedding = head.target.embedding
    linears = [module for module in head.modules() if isinstance(module, torch.nn.Linear)]
    if not embedding.is_cpu or embedding.dtype not in PACKABLE or not all(map(packable, linears)):
        return None
    head_dim = head.spec.head_dim
    frequencies: torch.Tensor = head.rotary.inv_freq  # type: ignore[assignment]
    whole_heads = len(frequencies) * 2 == head_dim and head_dim % 2 == 0
    return decoder_kernels() if whole_heads else None


def packed_output(head: DraftHead) -> PackedWeight:
    """The output head of the draft vocabulary; the target's own where it is the whole vocabulary and packed."""
    if head.spec.draft_token_ids is None and head.target.packed_output is not None:
        return head.target.packed_output
    return PackedWeight([head.output_weight(head.target.embedding.dtype)])


@dataclass(frozen=True, slots=True)
class _Mix:
    """What makes a layer's input of embedding and feature, and what its output passes before the output head."""

    projection: PackedWeight | None  # None: the feature alone is read
    embedding_norm: torch.Tensor | None = None
    feature_norm: torch.Tensor | None = None
    output_norm: torch.Tensor | None = None


class CompiledHead:
    """Weights of a head as the kernels read them; the head itself is not needed any more."""

    def __init__(self, head: DraftHead, kernels: ctypes.CDLL) -> None:
        self._kernels = kernels
        self._embedding = head.target.embedding
        self._epsilon: float = head.config.rms_norm_eps
        self._output = packed_output(head)
        self._mixes, layers = _taken_apart(head)
        self._stack = CompiledStack(
            layers, head.config, rotary=head.rotary, dtype=self._embedding.dtype, kernels=kernels
        )

    def run(self, step: StepMeta, features: torch.Tensor, depth: int) -> HeadOutput:
        """See `HeadNetwork.run`."""
        module = min(depth, len(self._mixes)) - 1
        mix = self._mixes[module]
        hidden = self._mixed(mix, step, features)
        self._stack.run(hidden, step, first=module, last=module + 1)
        wanted = hidden.index_select(0, step.wanted)
        if mix.output_norm is not None:
            wanted = rms_norm(self._kernels, wanted, mix.output_norm, epsilon=self._epsilon)
        logits = torch.empty(len(wanted), self._output.columns)
        self._output.apply(self._kernels, wanted, logits, Epilogue.WIDEN, threads=torch.get_num_threads())
        return HeadOutput(logits, hidden)

    def _mixed(self, mix: _Mix, step: StepMeta, features: torch.Tensor) -> torch.Tensor:
        """``[tokens, hidden]``, the layer's input, in memory of its own."""
        if mix.projection is None:
            return features.clone(memory_format=torch.contiguous_format)
        embeddings = self._embedding.index_select(0, step.token_ids)
        if mix.embedding_norm is not None and mix.feature_norm is not None:
            embeddings = rms_norm(self._kernels, embeddings, mix.embedding_norm, epsilon=self._epsilon)
            features = rms_norm(self._kernels, features.contiguous(), mix.feature_norm, epsilon=self._epsilon)
        both = torch.cat((embeddings, features), dim=1)
        hidden = torch.empty_like(embeddings)
        mix.projection.apply(self._kernels, both, hidden, Epilogue.PLAIN, threads=torch.get_num_threads())
        return hidden


def _taken_apart(head: DraftHead) -> tuple[list[_Mix], list[CompiledLayer]]:
    if isinstance(head, EagleHead):
        return [_Mix(_packed(head.fc))], [CompiledLayer(head.layers[0], head.config)]
    if not isinstance(head, MtpHead):
        raise TypeError(f"no compiled form of {type(head).__name__}")
    modules = [head.module_at(depth) for depth in range(1, head.spec.num_modules + 1)]
    layers = [CompiledLayer(module.layer, head.config) for module in modules]
    if head.spec.variant == "parallel":
        return [_Mix(None, output_norm=_copied(module.norm)) for module in modules], layers
    return [
        _Mix(_packed(module.eh_proj), _copied(module.enorm), _copied(module.hnorm), _copied(module.norm))
        for module in modules
    ], layers


def _packed(linear: torch.nn.Linear) -> PackedWeight:
    return PackedWeight([linear.weight.detach()], [linear.bias])


def _copied(norm: torch.nn.Module) -> torch.Tensor:
    weight: torch.Tensor = norm.weight  # type: ignore[assignment]
    return weight.detach().clone()
