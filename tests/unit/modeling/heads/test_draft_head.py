"""Heads compute the formulas of their papers, written out here for one token without any module of theirs."""

import torch
from torch.nn.functional import silu

from paceline.modeling.heads.checkpoint import load_head
from paceline.modeling.heads.target_weights import weights_of_model
from tiny_heads import save_eagle3, tiny_head, tiny_target

EPSILON = 1e-6
HEADS_PER_KV = 2


def norm(x, weight):
    return x / torch.sqrt((x * x).mean() + EPSILON) * weight


def attention_of_one(state, prefix, x):
    """A token that sees itself alone gets its own value, each of which serves two query heads."""
    value = (state[f"{prefix}self_attn.v_proj.weight"] @ x).view(-1, 16)
    return state[f"{prefix}self_attn.o_proj.weight"] @ value.repeat_interleave(HEADS_PER_KV, 0).flatten()


def feed_forward(state, prefix, x):
    normed = norm(x, state[f"{prefix}post_attention_layernorm.weight"])
    gate, up = state[f"{prefix}mlp.gate_proj.weight"] @ normed, state[f"{prefix}mlp.up_proj.weight"] @ normed
    return x + state[f"{prefix}mlp.down_proj.weight"] @ (silu(gate) * up)


def one_token(head, model):
    """Embedding and feature of a token, what the head makes of them, and its logits."""
    torch.manual_seed(7)
    feature, token = torch.randn(64), 5
    with torch.inference_mode():
        hidden = head(head.embed(torch.tensor([[token]])), feature.view(1, 1, 64))
        return model.model.embed_tokens.weight[token], feature, hidden[0, 0], head.draft_logits(hidden)[0, 0]


@torch.inference_mode()
def test_eagle():
    """layer(fc([embedding; feature])) without a first norm; the target's head on what comes out (Li et al. 2024)."""
    model = tiny_target()
    head = tiny_head("eagle-bias", model)
    state = head.state_dict()
    embedding, feature, hidden, logits = one_token(head, model)
    mixed = state["fc.weight"] @ torch.cat((embedding, feature)) + state["fc.bias"]
    expected = feed_forward(state, "layers.0.", mixed + attention_of_one(state, "layers.0.", mixed))

    assert torch.allclose(hidden, expected, atol=1e-4)
    assert torch.allclose(logits, model.lm_head(expected), atol=1e-4)


@torch.inference_mode()
def test_mtp():
    """layer(eh_proj([enorm(embedding); hnorm(feature)])), then the module's norm and the shared head."""
    model = tiny_target()
    head = tiny_head("mtp", model)
    state = {name.removeprefix("mtp.0."): tensor for name, tensor in head.state_dict().items()}
    embedding, feature, hidden, logits = one_token(head, model)
    both = torch.cat((norm(embedding, state["enorm.weight"]), norm(feature, state["hnorm.weight"])))
    mixed = state["eh_proj.weight"] @ both
    attended = attention_of_one(state, "layer.", norm(mixed, state["layer.input_layernorm.weight"]))
    expected = feed_forward(state, "layer.", mixed + attended)
    rows = model.lm_head.weight[list(head.spec.draft_token_ids)]

    assert torch.allclose(hidden, expected, atol=1e-4)
    assert torch.allclose(logits, rows @ norm(expected, state["norm.weight"]), atol=1e-4)


@torch.inference_mode()
def test_eagle3(tmp_path):
    """Attention over [norm(embedding); norm(feature)] added to the feature; own norm and head (Li et al. 2025)."""
    model = tiny_target()
    head = load_head(save_eagle3(tmp_path, model), weights_of_model(model))
    state = head.state_dict()
    embedding, feature, hidden, logits = one_token(head, model)
    normed = norm(feature, state["layers.0.hidden_norm.weight"])
    both = torch.cat((norm(embedding, state["layers.0.input_layernorm.weight"]), normed))
    expected = feed_forward(state, "layers.0.", feature + attention_of_one(state, "layers.0.", both))

    assert torch.allclose(hidden, expected, atol=1e-4)
    assert torch.allclose(logits, state["lm_head.weight"] @ norm(expected, state["norm.weight"]), atol=1e-4)
