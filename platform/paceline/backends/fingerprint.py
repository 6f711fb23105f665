"""Names everything that decides what a seed is replayed on."""

import hashlib

import torch

from paceline import __version__
from paceline.config.schema import DeploymentConfig
from paceline.core.model_identity import VocabularyIdentity
from paceline.modeling.packed_linear import packing_available

NUMERICS = "paged-sdpa-1"  # changes whenever the arithmetic of a pass changes


def system_fingerprint(config: DeploymentConfig, weights_version: str, vocabulary: VocabularyIdentity) -> str:
    """Hash of weights, tokenizer, dtype, engine, verifier and numerics; equal means replayable."""
    facts = (
        weights_version,
        vocabulary.fingerprint,
        config.model.dtype,
        config.model.device,
        config.engine.kind,
        config.verifier,
        NUMERICS,
        f"packed={packing_available()}",
        torch.backends.cpu.get_cpu_capability(),  # the instruction set decides the order of summation
        torch.__version__,
        __version__,
    )
    return "fp_" + hashlib.sha256("|".join(facts).encode()).hexdigest()[:16]
