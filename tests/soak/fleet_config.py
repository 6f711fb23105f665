"""What the soak runs on: the model, and the deployment around it."""

from pathlib import Path
from typing import Any, NamedTuple

from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig
from paceline.modeling.resolve import resolve_model
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

TINY = "tiny"


class Subject(NamedTuple):
    """A model and a deployment of it."""

    folder: Path
    config: dict[str, Any]

    @property
    def checked(self) -> DeploymentConfig:
        """The deployment as replicas see it."""
        return config_from_mapping(self.config)

    @property
    def groups(self) -> tuple[str, ...]:
        """Drafter groups."""
        return tuple(self.config["drafters"])


def remote_groups(config: dict[str, Any]) -> list[str]:
    """Drafter groups that have processes of their own."""
    return [group for group, section in config["drafters"].items() if section.get("place") != "in_process"]


def make_subject(model: str, folder: Path) -> Subject:
    """The tiny random model, written to ``folder``, or one by name."""
    if model != TINY:
        return Subject(resolve_model(model), _deployment(model, kv_cache_tokens=16384, draft_layers=24))
    save_tiny_model(folder, vocab_size=320, max_position_embeddings=2048, num_hidden_layers=3, seed=5)
    byte_level().save_pretrained(folder)
    # Little room, so that prefixes are given up and choices are sent back to wait.
    return Subject(folder, _deployment(str(folder), kv_cache_tokens=4096, draft_layers=2))


def _deployment(source: str, *, kv_cache_tokens: int, draft_layers: int) -> dict[str, Any]:
    return {
        "model": {"source": source, "dtype": "float32", "name": "soaked"},
        "engine": {"kv_cache_tokens": kv_cache_tokens, "max_running": 16, "threads": 1},
        "target": {"replicas": 2},
        "drafters": {
            "ngram": {"method": "ngram", "replicas": 2},
            "draft-model": {"method": "draft_model", "model": source, "num_layers": draft_layers, "replicas": 1},
            # Inside the targets, so that its drafts are always in time.
            "lookup": {"method": "ngram", "place": "in_process", "min_match_tokens": 1},
        },
        "gateway": {"replicas": 2, "default_max_tokens": 64},
        # Drafts never pay on a model whose pass takes a millisecond; they are wanted here all the same.
        "tunables": {"max_draft_tokens": 4, "draft_adaptive": False, "draft_wait_share": 4.0, "shadow_share": 0.05},
    }
