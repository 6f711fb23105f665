import pytest

from paceline.backends.fingerprint import system_fingerprint
from paceline.config.load import config_from_mapping
from paceline.core.model_identity import VocabularyIdentity

_VOCABULARY = VocabularyIdentity("words", 100, (("eos", 2),))


def _fingerprint(config=None, weights="w1", vocabulary=_VOCABULARY):
    return system_fingerprint(config_from_mapping(config or {}), weights, vocabulary)


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"verifier": "block"}},
        {"config": {"model": {"dtype": "bfloat16"}}},
        {"config": {"model": {"device": "cuda"}}},
        {"weights": "w2"},
        {"vocabulary": VocabularyIdentity("other words", 100, (("eos", 2),))},
    ],
    ids=str,
)
def test_whatever_changes_the_tokens_changes_the_fingerprint(change):
    """Weights, tokenizer, dtype, device and verifier each decide what a seed replays, so each is in the hash."""
    assert _fingerprint(**change) != _fingerprint()


@pytest.mark.parametrize(
    "config",
    [
        {"drafters": {"ngram": {"method": "ngram"}}},
        {"tunables": {"max_draft_tokens": 2, "speculation_enabled": False}},
        {"engine": {"max_running": 2, "kv_cache_tokens": 4096}},
        {"gateway": {"http_port": 8001}},
    ],
    ids=str,
)
def test_what_leaves_the_tokens_alone_leaves_the_fingerprint_alone(config):
    """Drafters, budgets, sizes and ports do not change what a seed replays."""
    assert _fingerprint(config) == _fingerprint()


def test_the_arithmetic_of_the_processor_is_part_of_the_fingerprint(monkeypatch):
    """Two machines may both compile the layers and still sum bfloat16 products in another order."""
    before = _fingerprint()
    monkeypatch.setattr("paceline.backends.fingerprint.decoder_arithmetic", lambda: "other")

    assert _fingerprint() != before


def test_numerics_are_part_of_the_fingerprint(monkeypatch):
    """Compiled kernels and their torch forms sum in another order."""
    before = _fingerprint()
    monkeypatch.setattr("paceline.backends.fingerprint.kernels_in_use", lambda _: "other")

    assert _fingerprint() != before
