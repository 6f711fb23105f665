"""Heads before their training: from the target's own last layer, or random."""

from collections.abc import Sequence

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
    """An EAGLE head for ``model``; it begins with the model's last layer, and lets the feature pass."""
    target = weights_of_model(model)
    config = head_config(model.config, 1)
    spec = layered_spec("eagle", "eagle", config, target=target, draft_token_ids=draft_token_ids)
    head = EagleHead(spec, config, target, fc_bias=fc_bias)
    if not random:
        _copy_last_layer(model, head.layers[0])
        _pass_feature(head.fc)
    return head


def new_mtp(
    model: PreTrainedModel,
    *,
    num_modules: int = 1,
    parallel: bool = False,
    draft_token_ids: Sequence[int] | None = None,
    random: bool = False,
) -> MtpHead:
    """MTP modules for ``model``; they begin with the model's last layer and last norm, and let the feature pass."""
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
        for index in range(num_modules):
            module = head.module_at(index + 1)
            _copy_last_layer(model, module.layer)
            module.norm.load_state_dict(model.model.norm.state_dict())
            if not parallel:
                _pass_feature(module.eh_proj)
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


def _pass_feature(projection: torch.nn.Linear) -> None:
    """Make ``projection`` of [embedding; feature] give the feature, with little of the embedding."""
    size = projection.out_features
    with torch.no_grad():
        projection.weight[:, :size].normal_(std=0.02)
        projection.weight[:, size:] = torch.eye(size)
        if projection.bias is not None:
            projection.bias.zero_()
