"""Heads are read in every published layout, written in one that reads back the same, and refused with a sentence."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.modeling.heads.checkpoint import has_native_mtp, load_head
from paceline.modeling.heads.compiled_head import packed_output
from paceline.modeling.heads.layout import read_head_config
from paceline.modeling.heads.new_heads import new_mtp
from paceline.modeling.heads.save_head import save_head
from paceline.modeling.heads.target_weights import weights_of_folder, weights_of_loaded, weights_of_model
from paceline.modeling.loader import load_model
from tiny_heads import DRAFT_IDS, KINDS, change_head, save_eagle3, save_tiny_head, tiny_head, tiny_target, write_head
from tiny_models import VOCAB_SIZE, save_tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_target()


@pytest.fixture(scope="module")
def target(model):
    return weights_of_model(model)


def outputs(head, size=64):
    """What a head computes for a fixed text, as one tensor."""
    torch.manual_seed(9)
    features = torch.randn(1, 7, size)
    if head.spec.method == "medusa":
        return head(features)
    results = []
    for depth in (1, 2):
        hidden = head(head.embed(torch.arange(7).unsqueeze(0)), features, depth=depth)
        results += [hidden.flatten(), head.draft_logits(hidden, depth).flatten()]
    return torch.cat(results)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["llama", "qwen2", "qwen3", "mistral", "llama-biases", "llama-tied"])
def test_what_was_saved_computes_the_same(tmp_path, kind, variant):
    """Every kind, for every family of targets: same numbers, same spec but for the version."""
    model = tiny_target(variant)
    head = tiny_head(kind, model)
    save_head(head, tmp_path, dtype=torch.float32)
    loaded = load_head(tmp_path, weights_of_model(model))

    assert torch.equal(outputs(loaded), outputs(head))
    assert loaded.spec.weights_version
    assert loaded.spec.draft_token_ids == head.spec.draft_token_ids
    assert (loaded.spec.method, loaded.spec.variant) == (head.spec.method, head.spec.variant)


def test_heads_take_the_targets_type_and_its_embedding_by_reference(tmp_path):
    """A float32 file for a bfloat16 target; nothing of the target is copied."""
    model = tiny_target(dtype=torch.bfloat16)
    target = weights_of_model(model)
    head = load_head(save_tiny_head(tmp_path, "eagle-bias", model), target)

    assert head.fc.weight.dtype is torch.bfloat16
    assert torch.equal(head.rotary.inv_freq, model.model.rotary_emb.inv_freq)  # rounded ones are off by radians
    assert head.output_weight(torch.bfloat16).data_ptr() == model.lm_head.weight.data_ptr()
    assert head.target.embedding.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert not any(name.startswith("target") for name in head.state_dict())


@pytest.mark.parametrize("layout", ["speculators", "authors"])
def test_eagle3(tmp_path, model, target, layout):
    """Both layouts: 2h-wide projections, own norm and head, draft ids by ``d2t``, a fused feature."""
    head = load_head(save_eagle3(tmp_path, model, layout=layout), target)
    tensors = load_file(tmp_path / "model.safetensors")

    assert head.spec.variant == "eagle3"
    assert head.spec.draft_token_ids == tuple((tensors["d2t"] + torch.arange(40)).tolist())
    assert head.spec.feature.kind.startswith("fused:")
    assert outputs(head).isfinite().all()


def test_eagle3_draft_ids_in_any_order(tmp_path, model, target):
    """Rows of the output head follow their ids, which the spec has in ascending order."""

    def turn(tensors):
        ids = (tensors["d2t"] + torch.arange(40)).flip(0)
        tensors["d2t"] = ids - torch.arange(40)
        tensors["lm_head.weight"] = tensors["lm_head.weight"].flip(0)

    straight = outputs(load_head(save_eagle3(tmp_path / "a", model), target))
    change_head(save_eagle3(tmp_path / "b", model), turn=turn)

    assert torch.equal(outputs(load_head(tmp_path / "b", target)), straight)


def test_norm_before_residual_is_another_head(tmp_path, model, target):
    """The switch of newer EAGLE-3 checkpoints is read."""
    plain = load_head(save_eagle3(tmp_path / "a", model), target)
    normed = load_head(save_eagle3(tmp_path / "b", model, norm_before_residual=True), target)

    assert not torch.equal(outputs(plain), outputs(normed))


def test_eagle_checkpoints_that_carry_the_targets_embedding(tmp_path, model, target, caplog):
    """A copy is dropped silently, another embedding with a warning: the target's own is used in either case."""
    same = save_tiny_head(tmp_path / "same", "eagle-bias", model)
    change_head(
        same, edit=lambda tensors: tensors.update({"embed_tokens.weight": model.model.embed_tokens.weight.data})
    )
    load_head(same, target)
    assert caplog.text == ""

    change_head(same, edit=lambda tensors: tensors["embed_tokens.weight"].add_(1))
    load_head(same, target)
    assert "differs from the target's" in caplog.text


def test_the_config_that_vllm_wraps_around_eagle(tmp_path, model, target):
    """``model_type: eagle`` with the layer's configuration inside."""
    save_tiny_head(tmp_path, "eagle", model)
    wrapped = {"model_type": "eagle", "model": read_head_config(tmp_path)}
    (tmp_path / "config.json").write_text(json.dumps(wrapped))

    assert load_head(tmp_path, target).spec.variant == "eagle"


def test_medusa_in_its_authors_layout(tmp_path, model, target):
    """``{head}.{layer}.linear`` blocks and an output head each."""
    torch.manual_seed(5)
    tensors = {}
    for head in range(2):
        tensors[f"{head}.0.linear.weight"] = torch.randn(64, 64)
        tensors[f"{head}.0.linear.bias"] = torch.randn(64)
        tensors[f"{head}.1.weight"] = torch.randn(VOCAB_SIZE, 64)
    write_head(tmp_path, {"medusa_num_heads": 2, "medusa_num_layers": 1}, tensors)
    head = load_head(tmp_path, target)
    feature = torch.randn(64)
    inner = torch.nn.functional.silu(tensors["1.0.linear.weight"] @ feature + tensors["1.0.linear.bias"])

    assert torch.allclose(head(feature)[1], tensors["1.1.weight"] @ (feature + inner), atol=1e-4)


def test_medusa_with_an_output_head_for_other_engines(tmp_path, model, target):
    """``with_output`` writes the target's reduced rows, as vLLM wants them; they compute the same."""
    head = tiny_head("medusa-reduced", model)
    save_head(head, tmp_path, dtype=torch.float32, with_output=True)
    tensors = load_file(tmp_path / "model.safetensors")

    assert torch.equal(tensors["lm_head.weight"], model.lm_head.weight[list(DRAFT_IDS)])
    assert tensors["token_map"].tolist() == list(DRAFT_IDS)
    assert torch.equal(outputs(load_head(tmp_path, target)), outputs(head))


def test_the_version_follows_weights_and_vocabulary(tmp_path, model, target):
    """Two heads that draft differently never share a version."""
    first = load_head(save_tiny_head(tmp_path, "eagle", model), target).spec.weights_version
    (tmp_path / "draft_vocabulary.json").write_text(json.dumps({"token_ids": [1, 2, 3]}))

    assert load_head(tmp_path, target).spec.weights_version != first


def add_native_mtp(folder, variant):
    """Put one MTP module among the weights of the target in ``folder``, as DeepSeek-V3 stores it."""
    model = tiny_target(variant)
    torch.manual_seed(4)
    save_head(new_mtp(model, num_modules=1, random=True), folder / "mtp", dtype=torch.float32)
    module = load_file(folder / "mtp" / "model.safetensors")
    weights = load_file(folder / "model.safetensors")
    layer = f"model.layers.{model.config.num_hidden_layers}."
    module[f"{layer}embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
    module[f"{layer}shared_head.head.weight"] = weights["lm_head.weight"].clone()
    save_file({**weights, **module}, folder / "model.safetensors", metadata={"format": "pt"})
    raw = read_head_config(folder)
    (folder / "config.json").write_text(json.dumps({**raw, "num_nextn_predict_layers": 1}))
    return {name.removeprefix(layer): tensor for name, tensor in module.items()}


@pytest.mark.parametrize("variant", ["llama", "qwen2"])
def test_native_mtp_modules(tmp_path, variant):
    """Found in the target's own folder, and loaded without another file; the target itself loads as before."""
    save_tiny_model(tmp_path, variant)
    plain = load_model(tmp_path, dtype="float32")
    stored = add_native_mtp(tmp_path, variant)
    loaded = load_model(tmp_path, dtype="float32")
    head = load_head(tmp_path, weights_of_loaded(loaded, tmp_path))

    assert has_native_mtp(tmp_path)
    assert (head.spec.method, head.spec.variant, head.spec.num_modules) == ("mtp", "sequential", 1)
    assert torch.equal(head.module_at(1).eh_proj.weight, stored["eh_proj.weight"])
    assert torch.equal(head.module_at(1).norm.weight, stored["shared_head.norm.weight"])
    assert loaded.num_layers == plain.num_layers


def test_native_mtp_uses_the_targets_own_storage(tmp_path):
    """Embedding and output head are the target's memory, so that memory grows by the module alone."""
    save_tiny_model(tmp_path, "llama")
    add_native_mtp(tmp_path, "llama")
    loaded = load_model(tmp_path, dtype="float32")
    head = load_head(tmp_path, weights_of_loaded(loaded, tmp_path))

    assert head.target.embedding.data_ptr() == loaded.model.get_input_embeddings().weight.data_ptr()
    assert packed_output(head) is loaded.network.packed_output
    owned = sum(parameter.numel() for parameter in head.parameters())
    layer = sum(parameter.numel() for parameter in tiny_target().model.layers[0].parameters())
    assert owned == layer + 2 * 64 * 64 + 3 * 64


def test_weights_of_a_folder_are_those_of_the_loaded_target(tmp_path):
    """What a drafter reads away from its target: the embedding, and the output head where it is another tensor."""
    for variant in ("llama", "llama-tied"):
        folder = save_tiny_model(tmp_path / variant, variant)
        read = weights_of_folder(folder, dtype=torch.float32)
        loaded = weights_of_loaded(load_model(folder, dtype="float32"), folder)

        assert torch.equal(read.embedding, loaded.embedding)
        assert torch.equal(read.output_rows((3, 5)), loaded.output_rows((3, 5)))
        assert (read.output is read.embedding) == (variant == "llama-tied")


def edit(name, change):
    """Change one tensor of a checkpoint."""
    return lambda tensors: tensors.update({name: change(tensors[name])})


def poked(value):
    def change(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[5] = value
        return tensor

    return change


MALFORMED = {
    "shape": ("eagle", edit("fc.weight", lambda t: t[:, :100]), {}, "'fc.weight' has the shape 64 x 100"),
    "nan": ("eagle", edit("layers.0.mlp.up_proj.weight", poked(float("nan"))), {}, "NaN or infinite"),
    "inf": ("mtp", edit("model.layers.2.eh_proj.weight", poked(float("inf"))), {}, "NaN or infinite"),
    "dtype": ("eagle", edit("fc.weight", lambda t: t.to(torch.int8)), {}, "holds int8, not floating-point"),
    "missing": ("eagle", lambda t: t.pop("layers.0.self_attn.q_proj.weight"), {}, "q_proj.weight' is missing"),
    "unknown": ("eagle", lambda t: t.update({"strange.weight": torch.ones(2)}), {}, "'strange.weight' belongs to no"),
    "vocabulary": ("eagle", None, {"vocab_size": 99}, "'vocab_size' is 99, but the target's is 128"),
    "hidden": ("mtp", None, {"hidden_size": 32}, "'hidden_size' is 32, but the target's is 64"),
    "family": ("eagle", None, {"model_type": "gemma"}, "family 'gemma'"),
    "scale": ("eagle", None, {"logit_scale": 0.5}, "'logit_scale'"),
    "modules": ("mtp", None, {"num_nextn_predict_layers": 3}, "'model.layers.4.*' is missing"),
    "heads": ("medusa", None, {"num_heads": 4}, "'blocks.3.layers.0.weight' is missing"),
    "fewer": ("medusa", None, {"num_heads": 2}, "belongs to no part"),
    "medusa size": ("medusa", None, {"hidden_size": 32}, "for another model"),
    "map": ("medusa-reduced", edit("token_map", lambda t: t * 0), {}, "'token_map' must hold different ids"),
    "no map": ("medusa-reduced", lambda t: t.pop("token_map"), {}, "'token_map' is missing"),
    "d2t range": ("eagle3", edit("d2t", lambda t: t + 100), {}, "'d2t' makes draft token"),
    "d2t twice": ("eagle3", edit("d2t", lambda t: t - torch.arange(40)), {}, "same token|makes draft token"),
    "t2d": ("eagle3", edit("t2d", lambda t: ~t), {}, "'t2d' and 'd2t' name different tokens"),
    "no d2t": ("eagle3", lambda t: t.pop("d2t"), {}, "'d2t' is missing"),
    "draft size": ("eagle3", None, {"draft_vocab_size": 41}, "'d2t' has the shape 40"),
    "switch": ("eagle3", None, {"norm_before_fc": True}, "'norm_before_fc'"),
    "fusion": ("eagle3", edit("fc.weight", poked(float("nan"))), {}, "NaN or infinite"),
    "layers": ("eagle3", None, {"eagle_aux_hidden_state_layer_ids": [1, 2]}, "'fc.weight' has the shape 64 x 192"),
}  # fmt: skip


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_checkpoint_is_refused_with_a_sentence(tmp_path, model, target, fault):
    """Each fault is named, in one sentence that begins with the folder."""
    kind, change, config, sentence = MALFORMED[fault]
    (save_eagle3(tmp_path, model) if kind == "eagle3" else save_tiny_head(tmp_path, kind, model))
    change_head(tmp_path, config=config, **({"edit": change} if change else {}))

    with pytest.raises(ModelRefusedError, match=sentence) as refused:
        load_head(tmp_path, target)
    message = str(refused.value)
    assert message.startswith(f"The head in {tmp_path} is refused: ")
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize("ids", [[], [5, 4], [4, 4], [-1], [128], "abc", [1.5], None])
def test_a_draft_vocabulary_must_be_ascending_ids(tmp_path, model, target, ids):
    """The file beside a layout that has no word for it."""
    save_tiny_head(tmp_path, "eagle", model)
    (tmp_path / "draft_vocabulary.json").write_text(json.dumps({"token_ids": ids}))

    with pytest.raises(ModelRefusedError, match=r"draft_vocabulary\.json is refused"):
        load_head(tmp_path, target)


def test_a_pickle_is_refused_and_the_way_out_named(tmp_path, target):
    """Nothing but `paceline models convert` ever reads a pickle."""
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 2}))
    (tmp_path / "medusa_lm_head.pt").write_bytes(pickle.dumps({}))

    with pytest.raises(ModelRefusedError, match=f"'paceline models convert {tmp_path} OUT_FOLDER'"):
        load_head(tmp_path, target)


def test_folders_without_a_readable_head(tmp_path, model, target):
    """No config, no weights, a torn file, a whole model."""
    with pytest.raises(ModelUnavailableError, match=r"Cannot read .*config\.json"):
        load_head(tmp_path, target)
    save_tiny_head(tmp_path, "eagle", model)
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelUnavailableError, match="cannot be read"):
        load_head(tmp_path, target)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailableError, match=r"no \*\.safetensors"):
        load_head(tmp_path, target)
    with pytest.raises(ModelRefusedError, match="holds a whole model"):
        load_head(save_tiny_model(tmp_path / "whole"), target)


def test_targets_whose_families_heads_do_not_know(tmp_path):
    """A family that scales its embedding would run and draft badly."""
    with pytest.raises(ModelRefusedError, match="family 'gemma'"):
        weights_of_folder(save_tiny_model(tmp_path, "gemma"), dtype=torch.float32)
