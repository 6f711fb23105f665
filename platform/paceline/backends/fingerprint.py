"""Names everything that decides what a seed is replayed on."""

import hashlib

import torch

from paceline import __version__
from paceline.config.schema import DeploymentConfig
from paceline.core.model_identity import VocabularyIdentity
from paceline.kernels.compiled import kernels_in_use
from paceline.kernels.decoder_layers import decoder_arithmetic
from paceline.modeling.onednn_linear import onednn_available

NUMERICS = "paged-2"  # changes whenever the arithmetic of a pass changes
_KERNELS = ("token_law", "token_noise")  # their torch forms may differ in the last bits


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
        f"layers={decoder_arithmetic()}",
        *(f"{name}={kernels_in_use(name)}" for name in _KERNELS),
        f"onednn={onednn_available()}",
        torch.backends.cpu.get_cpu_capability(),  # the instruction set decides the order of summation
        torch.__version__,
        __version__,
    )
    return "fp_" + hashlib.sha256("|".join(facts).encode()).hexdigest()[:16]
