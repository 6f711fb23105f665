"""What a target's own MTP module costs: its own weights, for embedding and output head are the target's storage."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from apt_heads import add_native_mtp
from paceline.modeling.heads.new_heads import new_mtp
from paceline.modeling.heads.save_head import save_head
from tiny_models import tiny_config
from tiny_tokenizers import byte_level

VOCAB, HIDDEN, INNER = 65_536, 256, 16_384
TABLE_BYTES = VOCAB * HIDDEN * 2  # embedding, or output head, in bfloat16: 32 MiB
_START = """
import asyncio, sys
from pathlib import Path
import psutil
from paceline.backends.native import NativeBackend
from paceline.config.schema import DeploymentConfig
folder, method = sys.argv[1:]
config = DeploymentConfig.model_validate({
    "model": {"source": folder, "dtype": "bfloat16"},
    "engine": {"kv_cache_tokens": 512, "threads": 1},
    "drafters": {"own": {"method": method, "place": "in_process"}},
})
backend = NativeBackend.start(Path(folder), config=config, drafters={})
groups = backend.snapshot().drafter_groups
assert groups[0].live, groups
print(psutil.Process().memory_info().rss)
asyncio.run(backend.close())
"""


@pytest.fixture(name="target", scope="module")
def _target(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder whose target carries one MTP module, and the module's bytes."""
    root = tmp_path_factory.mktemp("own_module")
    shape = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1}
    model = AutoModelForCausalLM.from_config(tiny_config("llama", **shape), dtype=torch.bfloat16)
    model.save_pretrained(root / "target")
    byte_level().save_pretrained(str(root / "target"))
    head = new_mtp(model, num_modules=1)
    save_head(head, root / "head", dtype=torch.bfloat16)
    add_native_mtp(root / "target", root / "head", num_modules=1)
    return root / "target", sum(parameter.numel() * 2 for parameter in head.parameters())


def test_memory_grows_by_the_module_alone(target: tuple[Path, int]) -> None:
    """Against an n-gram drafter, by resident memory; a copy of either table would show."""
    folder, module_bytes = target
    grown = _resident(folder, "mtp") - _resident(folder, "ngram")

    assert 0.8 * module_bytes < grown < module_bytes + 0.4 * TABLE_BYTES


def _resident(folder: Path, method: str) -> int:
    """Bytes of a process that has loaded the target with a drafter of this method."""
    command = [sys.executable, "-c", _START, str(folder), method]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout)
