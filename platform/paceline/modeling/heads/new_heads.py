"""Heads before their training: from the target's own last layer, or random."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from paceline.modeling.heads.eagle_head import EagleHead
from paceline.modeling.heads.head_layers import head_config
from paceline.modeling.heads.medusa_head import MedusaHead
from paceline.modeling.heads.mtp_head import MtpHead
from paceline.modeling.heads.specs import layered_spec, medusa_spec
from paceline.modeling.heads.target_weights import weights_of_model


def new_eagle(
    model: PreTrainedModel, *, draft_token_ids: Sequence[int] | None = None, random: bool = False, fc_bias: bool = False
) -> EagleHead:
    """An EAGLE head for ``model``; it begins with the model's last layer, and lets the feature pass.

    The layer is moved from the model's residual stream to the feature, which has passed the last norm: as it is, its
    output would be many times the feature, and its input another direction.
    """
    target = weights_of_model(model)
    config = head_config(model.config, 1)
    spec = layered_spec("eagle", "eagle", config, target=target, draft_token_ids=draft_token_ids)
    head = EagleHead(spec, config, target, fc_bias=fc_bias)
    if not random:
        _copy_last_layer(model, head.layers[0])
        stream = _residual_stream(model)
        _move_to_feature(head.layers[0], model.model.layers[-1].input_layernorm.weight.detach(), stream)
        _pass_feature(head.fc, embedding_std=stream.feature / (2 * stream.embedding * config.hidden_size**0.5))
    return head


def new_mtp(
    model: PreTrainedModel,
    *,
    num_modules: int = 1,
    parallel: bool = False,
    draft_token_ids: Sequence[int] | None = None,
    random: bool = False,
) -> MtpHead:
    """MTP modules for ``model``; they begin with the model's last layer and last norm, and let the feature pass.

    The norm of the feature begins as the inverse of the model's last norm, so that the layer sees what it is used to.
    """
    target = weights_of_model(model)
    config = head_config(model.config, num_modules)
    spec = layered_spec(
        "mtp",
        "parallel" if parallel else "sequential",
        config,
        target=target,
        num_modules=num_modules,
        draft_token_ids=draft_token_ids,
    )
    head = MtpHead(spec, config, target)
    if not random:
        stream = _residual_stream(model)
        for index in range(num_modules):
            module = head.module_at(index + 1)
            _copy_last_layer(model, module.layer)
            module.norm.load_state_dict(model.model.norm.state_dict())
            if not parallel:
                module.hnorm.weight.data = stream.size * stream.feature / stream.weight
                _pass_feature(module.eh_proj, embedding_std=stream.size / (2 * config.hidden_size**0.5))
    return head


def new_medusa(
    model: PreTrainedModel,
    *,
    num_heads: int,
    num_layers: int = 1,
    draft_token_ids: Sequence[int] | None = None,
    random: bool = False,
) -> MedusaHead:
    """Medusa heads for ``model`` that share its output head; they begin with blocks of zero, which pass the feature."""
    target = weights_of_model(model)
    head = MedusaHead(medusa_spec(target, num_heads, draft_token_ids), target, num_layers=num_layers)
    if not random:
        for parameter in head.blocks.parameters():
            torch.nn.init.zeros_(parameter)
    return head


def _copy_last_layer(model: PreTrainedModel, layer: torch.nn.Module) -> None:
    """Weights of the target's last layer; a norm that ``layer`` has not is left out."""
    last = model.model.layers[-1].state_dict()
    layer.load_state_dict({name: last[name] for name in layer.state_dict()})


class _ResidualStream(NamedTuple):
    """How large the numbers are that the target's last layer works with."""

    size: float  # root mean square of the stream at the last layer
    feature: float  # of the feature
    embedding: float  # of the embedding's rows
    weight: torch.Tensor  # [hidden] of the last norm, kept away from zero so that it can be divided by


@torch.no_grad()
def _residual_stream(model: PreTrainedModel) -> _ResidualStream:
    """Measured on a few random tokens; the first is left out, as its numbers are often far larger."""
    ids = torch.randint(model.config.vocab_size, (1, 64), generator=torch.Generator().manual_seed(0))
    states = model.model(ids.to(model.device), output_hidden_states=True, use_cache=False).hidden_states
    weight = model.model.norm.weight.float()
    smallest = weight.abs().mean() / 4
    weight = torch.where(weight < 0, -1.0, 1.0) * weight.abs().clamp(min=smallest)
    embedding: torch.Tensor = model.get_input_embeddings().weight.float()  # type: ignore[assignment]
    return _ResidualStream(
        _root_mean_square(states[-2]), _root_mean_square(states[-1]), _root_mean_square(embedding[None]), weight.clone()
    )


def _root_mean_square(rows: torch.Tensor) -> float:
    """The median row's, of ``[1, rows, size]`` without its first row."""
    return float(rows[0, 1:].float().pow(2).mean(-1).sqrt().median())


def _move_to_feature(layer: Any, input_weight: torch.Tensor, stream: _ResidualStream) -> None:
    """Let ``layer``, without its first norm (``input_weight``), read and write features instead of the stream."""
    attention, out = layer.self_attn, stream.weight / stream.size
    with torch.no_grad():
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight.mul_((input_weight / stream.weight).to(projection.weight))
        layer.post_attention_layernorm.weight.mul_(stream.feature / stream.weight)  # a norm divides by the size
        for projection in (attention.o_proj, layer.mlp.down_proj):
            projection.weight.mul_(out[:, None])
            if projection.bias is not None:
                projection.bias.mul_(out)


def _pass_feature(projection: torch.nn.Linear, *, embedding_std: float) -> None:
    """Make ``projection`` of [embedding; feature] give the feature and a random mix of the embedding, half as large."""
    size = projection.out_features
    with torch.no_grad():
        projection.weight[:, :size].normal_(std=embedding_std)
        projection.weight[:, size:] = torch.eye(size)
        if projection.bias is not None:
            projection.bias.zero_()
