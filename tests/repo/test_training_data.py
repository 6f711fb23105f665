"""Drafters are measured on prompts that none of them was trained on."""

import hashlib
import json
from functools import cache

import pytest

from paceline.bench.prompts import DEFAULT_PROMPTS
from paceline.config.data import data_file
from paceline.errors import ConfigError
from paceline.modeling.loader import load_config
from paceline.modeling.resolve import resolve_model
from paceline.text.tokenizer import TextTokenizer
from paceline.training.corpus import PACKED_SUFFIX, UserTurn
from paceline.training.exclusion import Exclusion, excluded_texts
from paceline.training.manifest import manifest_path, read_manifest, turn_hash
from paceline.training.packed import MOST_BYTES, unpack
from repository import ROOT

MODELS = ROOT / "deployments" / "models"
PACKED = sorted(MODELS.rglob(f"*{PACKED_SUFFIX}"))


@cache
def measured_prompts() -> tuple[str, ...]:
    """All turns of the bench's prompts, and of Spec-Bench where the file is there."""
    try:
        more = excluded_texts(data_file("spec-bench.jsonl"))
    except ConfigError:
        more = []
    return (*excluded_texts(DEFAULT_PROMPTS), *more)


def test_spec_bench_is_among_the_prompts_that_are_checked():
    """A check of the project's own prompts alone would prove too little."""
    try:
        path = data_file("spec-bench.jsonl")
    except ConfigError as error:
        pytest.skip(str(error))

    assert len(measured_prompts()) > 34 + len(path.read_text("utf-8").splitlines())


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_no_measured_prompt_is_in_a_manifest(packed):
    """And each packed file has a manifest of its very bytes."""
    manifest = read_manifest(manifest_path(packed))

    assert manifest.sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert [prompt for prompt in measured_prompts() if manifest.holds(prompt)] == []


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_packed_files_are_small(packed):
    """The repository stays one that is quick to clone."""
    assert packed.stat().st_size <= MOST_BYTES


@pytest.mark.model
@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_no_measured_prompt_is_in_a_packed_file(packed):
    """Not even as part of a longer question; and the manifest has every question that is there."""
    folder = resolve_model(read_manifest(manifest_path(packed)).model)
    tokenizer = TextTokenizer.load(folder, vocab_size=load_config(folder).vocab_size)
    user_turn = UserTurn(tokenizer)
    exclusion = Exclusion(measured_prompts())
    questions = {user_turn.of(dialogue) for dialogue in unpack(packed, tokenizer.vocabulary)}

    assert sorted(filter(exclusion.matches, questions)) == []
    assert {turn_hash(question) for question in questions} == set(read_manifest(manifest_path(packed)).turns)


def test_each_trained_model_names_data_that_is_here():
    """A record names the packed file with the hash of what lies there, so that training can go on elsewhere."""
    known = {hashlib.sha256(path.read_bytes()).hexdigest() for path in PACKED}
    records = sorted(MODELS.rglob("training.json"))
    strange = [
        f"{path.parent.name}: {entry['name']}"
        for path in records
        for entry in json.loads(path.read_text("utf-8"))["data"]
        if entry["sha256"] not in known
    ]

    assert strange == []
