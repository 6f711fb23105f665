"""Options of one side of a comparison."""

import pytest

from paceline.bench.variants import Variant, parse_variant
from paceline.errors import ConfigError


def test_options_are_read_and_written_back():
    """What is not named is left to the endpoint."""
    variant = parse_variant("b", "speculation=on, drafter=ngram,max_draft_tokens=4")

    assert variant == Variant("b", "on", "ngram", 4, 0.0)
    assert variant.text == "speculation=on,drafter=ngram,max_draft_tokens=4,temperature=0"
    assert variant.asks_for_speculation


def test_nothing_is_a_variant_too():
    """It says nothing that only Paceline understands."""
    assert parse_variant("a", "", temperature=0.7) == Variant("a", temperature=0.7)
    assert not Variant("a").asks_for_speculation


@pytest.mark.parametrize("text", ["speculation", "speed=9", "speculation=maybe", "max_draft_tokens=x"])
def test_mistakes_are_refused(text):
    """With the option at fault."""
    with pytest.raises(ConfigError, match=text.split("=")[-1]):
        parse_variant("a", text)
