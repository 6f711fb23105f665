"""Draft models whose folder leaves out what the target has, over a reduced draft vocabulary."""

import json
from pathlib import Path

import pytest
import torch

from draft_dialogue import ask, opening, row
from paceline.config.schema import DrafterConfig
from paceline.core.drafts import DraftProposal, DrawRule
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.build_draft_model import load_draft_model
from paceline.drafting.host import DrafterHost
from paceline.drafting.registry import build_drafter
from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.training.draft_model import new_draft_model, save_draft_model
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

IDS = (2, *range(5, 320, 3))
TOKENS = (1, 17, 9, 250, 31, 8)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, and its first layer as ``paceline train draft-model`` writes it, with and without the target's part."""
    made = {name: tmp_path_factory.mktemp(name) for name in ("target", "slim", "whole")}
    save_tiny_model(made["target"], vocab_size=320, tie_word_embeddings=request.param)
    byte_level().save_pretrained(str(made["target"]))
    draft = new_draft_model(made["target"], num_layers=1, draft_token_ids=IDS)
    save_draft_model(draft, made["slim"], target_folder=made["target"])
    save_draft_model(draft, made["whole"], target_folder=made["target"], whole=True)
    return made


def section(folder: Path, **changes: object) -> DrafterConfig:
    return DrafterConfig.model_validate({"method": "draft_model", "model": str(folder), **changes})


def cascade(folder: Path) -> DrafterConfig:
    levels = [{"method": "ngram", "min_match_tokens": 1}, {"method": "draft_model", "model": str(folder)}]
    return DrafterConfig.model_validate({"method": "cascade", "levels": levels})


def logits(folder: Path, host: DrafterHost) -> torch.Tensor:
    runner = load_draft_model("g", section(folder, dtype="bfloat16"), host).runner
    table = PageTable(runner.pool, len(TOKENS))
    table.extend_to(len(TOKENS))
    return runner.forward([ForwardRow(TOKENS, 0, table, len(TOKENS))])


def test_logits_are_the_rows_of_the_draft_vocabulary(folders: dict[str, Path], tmp_path: Path) -> None:
    """Those of the same model with its whole output head, at these ids; the slim folder takes them of the target."""
    full = tmp_path / "full"
    full.mkdir()
    for file in folders["whole"].iterdir():
        if file.name != "draft_vocabulary.json":
            (full / file.name).write_bytes(file.read_bytes())
    expected = logits(full, DrafterHost())[:, list(IDS)]

    for name, host in (("whole", DrafterHost()), ("slim", DrafterHost(target_folder=folders["target"]))):
        found = logits(folders[name], host)
        assert found.shape == (len(TOKENS), len(IDS))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_facts_are_the_targets_and_the_version_knows_the_vocabulary(folders: dict[str, Path]) -> None:
    """Vocabulary and special ids come from the target's tokenizer; another draft vocabulary is another drafter."""
    host = DrafterHost(target_folder=folders["target"])
    slim = load_draft_model("g", section(folders["slim"]), host)
    whole = load_draft_model("g", section(folders["whole"]), host)
    assert slim.facts.vocabulary == whole.facts.vocabulary
    assert slim.facts.vocabulary is not None
    assert slim.facts.vocabulary.size == slim.runner.vocab_size == 320
    assert slim.eos_token_ids == (2,)

    file = folders["slim"] / "draft_vocabulary.json"
    written = file.read_text()
    file.write_text(json.dumps({"token_ids": IDS[:-1]}))
    other = load_draft_model("g", section(folders["slim"]), host)
    file.write_text(written)
    assert other.facts.weights_version != slim.facts.weights_version


@pytest.mark.parametrize("rule", [DrawRule.COUPLED, DrawRule.INDEPENDENT])
@pytest.mark.parametrize("method", ["draft_model", "cascade"])
def test_drafts_are_ids_of_the_draft_vocabulary(folders: dict[str, Path], method: str, rule: DrawRule) -> None:
    """As tokens of the target, laws included; context tokens may be any."""
    config = cascade(folders["slim"]) if method == "cascade" else section(folders["slim"])
    drafter = build_drafter("g", config, DrafterHost(target_folder=folders["target"])).drafter
    assert drafter.method == method
    drafter.open([opening(sampling=SamplingParams(temperature=1.0), rule=rule)])
    for length in range(3, 9):
        drafter.open([opening(sampling=SamplingParams(temperature=1.0), rule=rule)])
        reply = ask(drafter, row(HashedTokens((*TOKENS, 4, 4, 4)[:length]), 0, depth=4))
        assert isinstance(reply, DraftProposal)
        assert len(reply.tree) == 4 or reply.tree.token_ids[-1] == 2
        assert set(reply.tree.token_ids) <= set(IDS)
        assert all(set(law.token_ids) <= set(IDS) for law in reply.laws)
        assert len(reply.laws) == (4 if rule is DrawRule.INDEPENDENT else 0)


def test_a_cascade_drafts_what_its_draft_model_drafts(folders: dict[str, Path]) -> None:
    """The level below may propose any token; those outside the draft vocabulary are corrected."""
    host = DrafterHost(target_folder=folders["target"])
    tokens = HashedTokens((7, 4, 6, 7, 4, 6, 7))
    trees = []
    for config in (cascade(folders["slim"]), section(folders["slim"])):
        drafter = build_drafter("g", config, host).drafter
        drafter.open([opening(sampling=SamplingParams(temperature=1.0))])
        reply = ask(drafter, row(tokens, 0, depth=5))
        assert isinstance(reply, DraftProposal)
        trees.append(reply.tree)
    assert trees[0] == trees[1]


def test_without_a_target_a_slim_folder_is_refused(folders: dict[str, Path]) -> None:
    """The sentence says what is missing, and of whom."""
    with pytest.raises(ModelUnavailableError, match="borrows it from its target"):
        build_drafter("g", section(folders["slim"]))


def test_a_draft_vocabulary_beyond_the_models_is_refused(folders: dict[str, Path]) -> None:
    """An id that no row belongs to is named as a fault of the file."""
    file = folders["slim"] / "draft_vocabulary.json"
    written = file.read_text()
    file.write_text(json.dumps({"token_ids": [5, 320]}))
    with pytest.raises(ModelRefusedError, match=r"draft_vocabulary\.json is refused"):
        build_drafter("g", section(folders["slim"]), DrafterHost(target_folder=folders["target"]))
    file.write_text(written)
