"""Cascades and drafters from outside in the configuration file."""

from pathlib import Path

import pytest

from paceline.config.load import config_from_mapping, load_config
from paceline.config.schema import DrafterConfig, is_outside_class
from paceline.errors import ConfigError

MODEL = {"method": "draft_model", "model": "small"}
NGRAM = {"method": "ngram"}


def cascade(*levels, **group):
    return {"drafters": {"c": {"method": "cascade", "levels": list(levels), **group}}}


@pytest.mark.parametrize(
    ("mapping", "sentence"),
    [
        (cascade(), "a cascade needs 'levels'"),
        (cascade(NGRAM), "two or more drafters"),
        (cascade(NGRAM, NGRAM), "level 2 is ngram: a level that corrects another is a draft_model"),
        (cascade({**NGRAM, "place": "in_process"}, MODEL), "level 1 has place, which the whole cascade has"),
        (cascade(cascade(NGRAM, MODEL)["drafters"]["c"], MODEL), "level 1 is cascade"),
        (cascade(NGRAM, {"method": "draft_model"}), "needs 'model'"),
        (cascade(NGRAM, {**MODEL, "min_match_tokens": 2}), "has no min_match_tokens"),
        (cascade(NGRAM, {**MODEL, "modle": "x"}), "did you mean 'model'"),
        (cascade(NGRAM, MODEL, model="x"), "a group of method cascade has no model"),
        ({"drafters": {"o": {"method": "a.b:C", "model": "x"}}}, "a group of method a.b:C has no model"),
        ({"drafters": {"o": {**NGRAM, "options": {"a": 1}}}}, "a group of method ngram has no options"),
        ({"drafters": {"o": {"method": "a.b.C"}}}, "'package.module:Class'"),
        ({"verifier": "rejection", **cascade(NGRAM, MODEL)}, "a cascade works inside the target only"),
        ({"verifier": "block", **cascade(NGRAM, MODEL, place="remote")}, "set its place to in_process"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(mapping, sentence):
    """Levels without an order, without a model, with keys of a group; drawn drafts behind a link."""
    with pytest.raises(ConfigError) as caught:
        config_from_mapping(mapping)

    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "mapping",
    [
        cascade(NGRAM, MODEL),
        cascade(NGRAM, MODEL, {**MODEL, "num_layers": 4}),
        cascade({"method": "a.b:C", "options": {"reach": 2}}, MODEL),
        {"verifier": "rejection", **cascade(NGRAM, MODEL, place="in_process")},
        {"drafters": {"o": {"method": "my_pkg.drafter:Class1", "options": {"sizes": [1, 2], "deep": {"a": None}}}}},
    ],
)
def test_what_can_work_is_the_same_after_a_round_trip(mapping):
    """A replica that reads a dump gets the same group."""
    for group in config_from_mapping(mapping).drafters.values():
        assert DrafterConfig.model_validate(group.model_dump(mode="json")) == group


def test_models_of_levels_lie_beside_the_file(tmp_path: Path):
    """As those of a group do."""
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text("{}", encoding="utf-8")
    file = tmp_path / "c.yaml"
    file.write_text(
        "drafters:\n  c:\n    method: cascade\n    levels:\n      - {method: ngram}\n"
        "      - {method: draft_model, model: ./draft}\n",
        encoding="utf-8",
    )
    (_, level) = load_config(file).drafters["c"].levels

    assert level.model == str(tmp_path / "draft")


@pytest.mark.parametrize("name", ["a:B", "a.b_c:D1", "_x.y:Z"])
def test_classes_from_outside_are_told_by_their_colon(name):
    """A path of Python names, a colon, a Python name."""
    assert is_outside_class(name)
    assert not any(is_outside_class(other) for other in (name.replace(":", "."), name + ":X", "-" + name, name + "."))
