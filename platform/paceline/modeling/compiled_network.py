"""Decoders of Llama's shape on CPU, as one call of ``kernels/decoder_layers.c`` per pass.

Around the arithmetic of one token, the modules of Transformers spend more time than the arithmetic takes.
"""

import ctypes

import torch
from transformers import PreTrainedModel

from paceline.kernels.decoder_layers import Epilogue
from paceline.modeling.compiled_layer import CompiledLayer
from paceline.modeling.compiled_norm import rms_norm
from paceline.modeling.compiled_stack import CompiledStack
from paceline.modeling.network import NO_STATES, TargetPass, WantedStates
from paceline.modeling.packed_linear import release_file
from paceline.modeling.packed_weight import PACKABLE, PackedWeight, packable
from paceline.modeling.step_meta import StepMeta

_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


def has_llama_shape(model: PreTrainedModel) -> bool:
    """Whether the compiled layers compute what ``model`` does; others run through their own modules."""
    config = model.config
    if config.model_type not in _FAMILIES or config.hidden_act != "silu" or model.dtype not in PACKABLE:
        return False
    head_dim = model.model.layers[0].self_attn.head_dim
    rotated = model.model.rotary_emb.inv_freq.shape[0] * 2
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    return rotated == head_dim and head_dim % 2 == 0 and all(packable(linear) for linear in linears)


class CompiledNetwork:
    """Embedding, compiled layers, head; takes the weights out of the model, whose layers are gone then."""

    def __init__(self, model: PreTrainedModel, kernels: ctypes.CDLL) -> None:
        config, decoder = model.config, model.model
        self._kernels = kernels
        layers = [CompiledLayer(layer, config) for layer in decoder.layers]
        self.packed_output = PackedWeight([model.lm_head.weight], [model.lm_head.bias])
        decoder.layers, model.lm_head = torch.nn.ModuleList(), torch.nn.Identity()
        release_file(model)
        self._embedding: torch.Tensor = decoder.embed_tokens.weight
        self._norm: torch.Tensor = decoder.norm.weight
        self._epsilon: float = config.rms_norm_eps
        self._stack = CompiledStack(
            layers, config, rotary=decoder.rotary_emb, dtype=self._embedding.dtype, kernels=kernels
        )

    def run(self, step: StepMeta, states: WantedStates = NO_STATES) -> TargetPass:
        """See `Network.run`. Only the rows that are wanted pass the last norm and the head."""
        hidden = self._embedding.index_select(0, step.token_ids)
        inputs: dict[int, torch.Tensor] = {}
        done = 0
        for layer in states.inputs:
            if layer > done:
                self._stack.run(hidden, step, first=done, last=layer)
            inputs[layer], done = hidden.clone(), layer
        if done < len(self._stack):
            self._stack.run(hidden, step, first=done)
        if states.last:  # a row's norm has the same bits whatever the rows beside it
            last = rms_norm(self._kernels, hidden, self._norm, epsilon=self._epsilon)
            return TargetPass(self._logits(last.index_select(0, step.wanted)), last, inputs)
        wanted = hidden.index_select(0, step.wanted)
        return TargetPass(
            self._logits(rms_norm(self._kernels, wanted, self._norm, epsilon=self._epsilon)), None, inputs
        )

    def _logits(self, normed: torch.Tensor) -> torch.Tensor:
        logits = torch.empty(len(normed), self.packed_output.columns)
        self.packed_output.apply(self._kernels, normed, logits, Epilogue.WIDEN, threads=torch.get_num_threads())
        return logits
