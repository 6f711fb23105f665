"""A cascade is put together from its configuration, and its levels must fit each other."""

from dataclasses import replace
from pathlib import Path

import pytest

from draft_dialogue import ask, opening, row
from paceline.config.schema import DrafterConfig
from paceline.core.drafts import DraftProposal
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.cascade_facts import cascade_facts, check_level
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.registry import build_drafter
from paceline.errors import ConfigError
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level, text_tokenizer

VOCABULARY = text_tokenizer("byte_level").vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = save_tiny_model(tmp_path_factory.mktemp("drafter"), vocab_size=512)
    byte_level().save_pretrained(str(made))
    return made


def _proposal(config: DrafterConfig, tokens: HashedTokens) -> DraftProposal:
    drafter = build_drafter("g", config).drafter
    drafter.open([opening()])
    reply = ask(drafter, row(tokens, 0, depth=6))
    assert isinstance(reply, DraftProposal)
    return reply


def test_three_levels_draft_what_the_last_one_drafts(folder: Path) -> None:
    """n-gram, half a model, the whole model: the facts and the tokens are those of the whole model."""
    whole = {"method": "draft_model", "model": str(folder)}
    levels = [{"method": "ngram", "min_match_tokens": 1}, {**whole, "num_layers": 1}, whole]
    config = DrafterConfig.model_validate({"method": "cascade", "levels": levels})
    read_again = DrafterConfig.model_validate(config.model_dump())
    tokens = HashedTokens([5, 6, 7, 5, 6, 7, 5])
    built, alone = build_drafter("g", read_again), build_drafter("g", DrafterConfig.model_validate(whole))

    assert _proposal(read_again, tokens).tree == _proposal(DrafterConfig.model_validate(whole), tokens).tree
    assert (built.facts.method, built.facts.vocabulary) == ("cascade", alone.facts.vocabulary)
    assert built.facts.context_length == alone.facts.context_length
    assert built.facts.weights_version.endswith(f"+{alone.facts.weights_version}")


def test_levels_of_other_vocabularies_are_refused() -> None:
    """The sentence names the levels and the field."""
    facts = DrafterFacts("draft_model", "g", VOCABULARY, 64)
    other = DrafterFacts("draft_model", "g", replace(VOCABULARY, size=999), 64)

    check_level(facts, DrafterFacts("ngram", "g"), group="g", level=1)
    with pytest.raises(ConfigError, match=r"level 1 does not fit level 2: .*vocabulary.size"):
        check_level(facts, other, group="g", level=1)
    with pytest.raises(ConfigError, match="level 2 has no vocabulary"):
        check_level(DrafterFacts("ngram", "g"), facts, group="g", level=1)


def test_the_shortest_context_counts() -> None:
    """And the weights of all levels that have some."""
    below, above = DrafterFacts("a", "g", None, 32, "w1"), DrafterFacts("b", "g", VOCABULARY, 64, "w2")

    assert cascade_facts(above, below) == DrafterFacts("cascade", "g", VOCABULARY, 32, "w1+w2")
    assert cascade_facts(above, DrafterFacts("ngram", "g")).context_length == 64
