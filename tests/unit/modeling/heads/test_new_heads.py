"""Heads begin with what the target knows, and see the feature from the first step on."""

import pytest
import torch

from paceline.modeling.heads.new_heads import _residual_stream, new_eagle, new_medusa, new_mtp
from tiny_heads import tiny_target
from tiny_models import VOCAB_SIZE


@pytest.fixture(scope="module", params=["llama", "qwen3", "mistral"])
def model(request):
    model = tiny_target(request.param)
    with torch.no_grad():
        for norm in (model.model.norm, model.model.layers[-1].input_layernorm):
            norm.weight.uniform_(0.7, 1.5)
    return model


@torch.inference_mode()
def residual_and_feature(model):
    """A vector of the residual stream, as large as those before the last layer, and the feature made of it."""
    stream = _residual_stream(model)
    torch.manual_seed(2)
    residual = torch.randn(1, 1, 64)
    residual *= stream.size / residual.pow(2).mean().sqrt()
    return residual, model.model.norm(residual), stream


def last_layer(model, residual):
    angles = model.model.rotary_emb(residual, torch.zeros(1, 1, dtype=torch.int64))
    return model.model.layers[-1](residual, position_embeddings=angles)


@torch.inference_mode()
def test_eagle_begins_as_the_last_layer_in_the_features_place(model):
    """What the last layer adds to the stream, the head adds to the feature, at the feature's scale."""
    head = new_eagle(model, fc_bias=True)
    residual, feature, stream = residual_and_feature(model)
    added = (last_layer(model, residual) - residual) * model.model.norm.weight / stream.size

    found = head(torch.zeros(1, 1, 64), feature) - feature
    # Not exact: a norm of weighted numbers divides by a slightly other size.
    assert torch.nn.functional.cosine_similarity(found, added, dim=-1) > 0.98
    assert float(found.norm() / added.norm()) == pytest.approx(1, abs=0.15)
    assert not any("input_layernorm" in name for name in head.state_dict())


@torch.inference_mode()
def test_mtp_begins_as_the_last_layer_and_the_last_norm(model):
    """The feature becomes the residual stream again; each module is a copy of its own."""
    head = new_mtp(model, num_modules=2)
    first, second = head.module_at(1), head.module_at(2)
    residual, feature, stream = residual_and_feature(model)
    feature = feature * stream.feature / feature.pow(2).mean().sqrt()

    mixed = first.mix(torch.zeros(1, 1, 64), feature)
    assert torch.allclose(mixed, residual * (mixed / residual).mean(), atol=1e-3)
    assert float(mixed.pow(2).mean().sqrt()) == pytest.approx(stream.size, rel=0.5)
    assert torch.equal(first.norm.weight, model.model.norm.weight)
    assert torch.equal(second.layer.mlp.up_proj.weight, model.model.layers[-1].mlp.up_proj.weight)
    assert first.layer.mlp.up_proj.weight.data_ptr() != second.layer.mlp.up_proj.weight.data_ptr()
    assert head.module_at(9) is second
    assert (first.layer.self_attn.layer_idx, second.layer.self_attn.layer_idx) == (0, 1)


def test_parallel_modules_have_no_word_for_the_embedding(model):
    """Heads on the trunk read the feature alone."""
    head = new_mtp(model, num_modules=3, parallel=True)
    features = torch.randn(1, 5, 64)

    assert torch.equal(head(torch.zeros(1, 5, 64), features), head(torch.ones(1, 5, 64), features))
    assert not any("eh_proj" in name for name in head.state_dict())


def test_medusa_begins_as_the_targets_own_head(model):
    """Blocks of zero: every head predicts what the target's head does."""
    feature = torch.randn(64)
    logits = new_medusa(model, num_heads=3)(feature)

    assert torch.equal(logits, model.lm_head(feature).expand(3, VOCAB_SIZE))


def test_training_changes_the_head_and_never_the_target(model):
    """Gradients reach every weight of the head, and none of the target's tensors."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for head in (new_eagle(model), new_mtp(model, num_modules=1)):
        embeddings = head.embed(torch.arange(6).unsqueeze(0))
        hidden = head(embeddings, torch.randn(1, 6, 64))
        head.draft_logits(hidden).logsumexp(-1).sum().backward()
        with torch.no_grad():
            for parameter in head.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad)

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_mask_of_training(model):
    """Causal by default; a mask of one's own decides who sees whom, positions who is how far."""
    head = new_eagle(model)
    embeddings, features = torch.randn(1, 6, 64), torch.randn(1, 6, 64)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    alone = torch.eye(6, dtype=torch.bool)[None, None]

    assert torch.allclose(head(embeddings, features), head(embeddings, features, causal), atol=1e-5)
    single = head(embeddings[:, 4:5], features[:, 4:5], positions=torch.tensor([[4]]))
    assert torch.allclose(head(embeddings, features, alone)[:, 4:5], single, atol=1e-5)


@pytest.mark.parametrize("random", [False, True])
def test_random_heads_share_nothing_with_the_target(random):
    """The ablation of the initialisation."""
    model = tiny_target()
    copied = torch.equal(
        new_eagle(model, random=random).layers[0].mlp.up_proj.weight, model.model.layers[-1].mlp.up_proj.weight
    )

    assert copied is not random
