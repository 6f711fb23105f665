"""The gate names the field in which target and drafter differ."""

from dataclasses import replace

import pytest

from paceline.core.model_identity import VocabularyIdentity
from paceline.drafting.matching import DrafterFacts, TargetFacts, check_match
from paceline.errors import LinkRefusedError

VOCABULARY = VocabularyIdentity("aa", 512, (("bos", 1), ("eos", 2)))
TARGET = TargetFacts(VOCABULARY, context_length=128)
DRAFTER = DrafterFacts("draft_model", "small", VOCABULARY, 128, "w1")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"group": "other"}, "group"),
        ({"vocabulary": replace(VOCABULARY, size=513)}, "vocabulary.size"),
        ({"vocabulary": replace(VOCABULARY, special_ids=(("bos", 1), ("eos", 3)))}, "vocabulary.special_ids.eos"),
        ({"vocabulary": replace(VOCABULARY, special_ids=(("bos", 1),))}, "vocabulary.special_ids.eos"),
        ({"vocabulary": replace(VOCABULARY, fingerprint="bb")}, "vocabulary.fingerprint"),
        ({"context_length": 127}, "context_length"),
    ],
)
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_a_mismatch_is_refused_by_field_for_every_method(method: str, changes: dict[str, object], field: str) -> None:
    """The same gate and the same error, whatever the method."""
    drafter = replace(DRAFTER, method=method, **changes)  # type: ignore[arg-type]
    with pytest.raises(LinkRefusedError) as raised:
        check_match(TARGET, drafter, group="small")
    assert raised.value.field == field
    assert field in str(raised.value)


@pytest.mark.parametrize("drafter", [DRAFTER, replace(DRAFTER, context_length=4096), DrafterFacts("ngram", "small")])
def test_what_fits_passes(drafter: DrafterFacts) -> None:
    """A longer context fits, and a method without vocabulary or context of its own."""
    check_match(TARGET, drafter, group="small")
