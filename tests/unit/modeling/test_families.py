import pytest
from transformers import AutoConfig

from paceline.errors import ModelRefusedError
from paceline.modeling.families import check_config, check_files
from tiny_models import VARIANTS, tiny_config


@pytest.mark.parametrize("variant", VARIANTS)
def test_tested_families_are_accepted(variant):
    """Every variant that is compared with stock passes the checks."""
    check_config(tiny_config(variant))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic"),
        (
            {
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0] * 8,
                    "long_factor": [2.0] * 8,
                    "factor": 2.0,
                    "original_max_position_embeddings": 128,
                }
            },
            "longrope",
        ),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantization_config"),
        ({"is_encoder_decoder": True}, "encoder"),
        ({"use_bidirectional_attention": True}, "both directions"),
        ({"vision_config": {"hidden_size": 8}}, "vision_config"),
        ({"num_kv_shared_layers": 1}, "num_kv_shared_layers"),
        ({"global_head_dim": 32}, "global_head_dim"),
        ({"kv_lora_rank": 16}, "kv_lora_rank"),
    ],
)
def test_a_llama_that_would_be_wrong_is_refused_by_name(changes, named):
    """One sentence names the field or value that stands in the way."""
    config = tiny_config("llama")
    for field, value in changes.items():
        setattr(config, field, value)

    with pytest.raises(ModelRefusedError, match=named) as refusal:
        check_config(config)
    assert str(refusal.value).count(". ") == 0


def test_rope_types_nested_by_layer_type_are_seen():
    """Gemma 3 nests its rotary parameters; a refused type inside them is found."""
    config = tiny_config("gemma3_text")
    config.rope_parameters["full_attention"]["rope_type"] = "dynamic"

    with pytest.raises(ModelRefusedError, match="dynamic"):
        check_config(config)


def test_other_layer_types_are_refused():
    """Linear, chunked and other kinds of layers are refused."""
    config = tiny_config("qwen3")
    config.layer_types = ["full_attention", "linear_attention"]

    with pytest.raises(ModelRefusedError, match="linear_attention"):
        check_config(config)


def test_per_layer_sizes_are_refused():
    """K/V tensors have one shape for all layers."""
    config = tiny_config("llama")
    config.__dict__["num_key_value_heads"] = [2, 1]

    with pytest.raises(ModelRefusedError, match="num_key_value_heads"):
        check_config(config)


@pytest.mark.parametrize("model_type", ["gpt2", "t5", "mamba", "deepseek_v3", "gemma3"])
def test_untested_architectures_are_refused(model_type):
    """What has not been compared with stock is not served."""
    with pytest.raises(ModelRefusedError):
        check_config(AutoConfig.for_model(model_type))


def test_code_in_the_repository_is_named():
    """A model whose code lies beside its weights is refused; nothing is imported."""
    config = AutoConfig.for_model("gpt2")
    config.auto_map = {"AutoModelForCausalLM": "modeling_evil.Evil"}

    with pytest.raises(ModelRefusedError, match="code from its repository"):
        check_config(config)


@pytest.mark.parametrize(("file", "hint"), [("pytorch_model.bin", "pickles"), ("README.md", "no \\*.safetensors")])
def test_folders_without_safetensors_are_refused(tmp_path, file, hint):
    """Pickles are never opened; an incomplete folder is named."""
    (tmp_path / file).write_bytes(b"x")

    with pytest.raises(ModelRefusedError, match=hint):
        check_files(tmp_path)
