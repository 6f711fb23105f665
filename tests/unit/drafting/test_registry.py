"""Drafters are found by the name of their method."""

import subprocess
import sys
from pathlib import Path

import pytest

from draft_dialogue import ask, opening, row
from paceline.config.schema import METHOD_OPTIONS, DrafterConfig
from paceline.core.drafts import DraftProposal
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.matching import DrafterFacts, TargetFacts
from paceline.drafting.registry import DRAFTERS, build_drafter, build_matching_drafter
from paceline.errors import ConfigError, LinkRefusedError
from tiny_models import VOCAB_SIZE, save_tiny_model
from tiny_tokenizers import byte_level, text_tokenizer


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drafter")
    save_tiny_model(folder, vocab_size=512)
    byte_level().save_pretrained(folder)
    return folder


def _config(folder: Path, **changes: object) -> DrafterConfig:
    return DrafterConfig.model_validate({"method": "draft_model", "model": str(folder), **changes})


def test_every_method_of_the_schema_can_be_built() -> None:
    """The registry and the configuration know the same names."""
    assert set(DRAFTERS) == set(METHOD_OPTIONS)


def test_an_unknown_method_names_the_known_ones() -> None:
    """A method from outside the schema is a configuration error."""
    config = DrafterConfig.model_construct(method="oracle")
    with pytest.raises(ConfigError, match="ngram, draft_model"):
        build_drafter("group", config)


def test_ngram_takes_its_limits_from_the_configuration() -> None:
    """min_match_tokens 1 finds what 2 does not, and the method has no vocabulary of its own."""
    built = build_drafter("copy", DrafterConfig(method="ngram", min_match_tokens=1))
    assert built.facts == DrafterFacts("ngram", "copy")
    built.drafter.open([opening()])
    reply = ask(built.drafter, row(HashedTokens([5, 6, 7, 5]), 0, depth=2))
    assert isinstance(reply, DraftProposal)
    assert reply.tree.token_ids == (6, 7)


def test_a_draft_model_says_what_it_is_and_drafts(model_folder: Path) -> None:
    """Vocabulary, context and weights come from its folder; a truncated copy has other weights."""
    built = build_drafter("small", _config(model_folder))
    cut = build_drafter("small", _config(model_folder, num_layers=1))
    assert built.facts.method == built.drafter.method == "draft_model"
    assert built.facts.vocabulary is not None
    assert built.facts.vocabulary.fingerprint == text_tokenizer("byte_level").vocabulary.fingerprint
    assert built.facts.vocabulary.size == 512 != VOCAB_SIZE
    assert built.facts.context_length == 512
    assert built.facts.weights_version != cut.facts.weights_version
    built.drafter.open([opening()])
    reply = ask(built.drafter, row(HashedTokens([5, 6, 7, 5]), 0, depth=3))
    assert isinstance(reply, DraftProposal)
    assert len(reply.tree) == 3


def test_a_drafter_in_process_passes_the_same_gate(model_folder: Path) -> None:
    """A target with another vocabulary or a longer context refuses it by field name."""
    facts = build_drafter("small", _config(model_folder)).facts
    assert facts.vocabulary is not None
    fitting = TargetFacts(facts.vocabulary, context_length=512)
    assert build_matching_drafter("small", _config(model_folder), fitting).live
    for target, field in (
        (TargetFacts(text_tokenizer("byte_level").vocabulary, 512), "vocabulary.size"),
        (TargetFacts(facts.vocabulary, 513), "context_length"),
    ):
        with pytest.raises(LinkRefusedError) as raised:
            build_matching_drafter("small", _config(model_folder), target)
        assert raised.value.field == field


def test_an_ngram_replica_never_imports_torch() -> None:
    """Building the n-gram drafter loads neither torch nor Transformers."""
    code = (
        "import sys\n"
        "from paceline.config.schema import DrafterConfig\n"
        "from paceline.drafting.registry import build_drafter\n"
        "build_drafter('copy', DrafterConfig(method='ngram'))\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
