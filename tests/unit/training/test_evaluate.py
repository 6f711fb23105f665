"""Evaluations: what is asked, what is counted, what is written."""

import dataclasses
import json

import pytest

from paceline.bench.prompts import BenchPrompt
from paceline.bench.provenance import collect_provenance
from paceline.bench.records import DraftCounts, Recording, RoundCounts
from paceline.bench.report import to_json, to_markdown
from paceline.config.schema import DeploymentConfig, Tunables
from paceline.errors import ConfigError, EngineFailedError
from paceline.training.evaluate import (
    Budget,
    CellKey,
    EvaluationSetup,
    PromptSet,
    evaluate,
    evaluation_config,
    read_budget,
    read_prompts,
)
from paceline.training.evaluation_report import evaluation_result

PROMPTS = PromptSet("own", tuple(BenchPrompt(category, category) for category in ("code", "copy", "creative", "chat")))
SETUP = EvaluationSetup(
    sets=[PROMPTS], groups=["good", "bad"], budgets=[], temperatures=[0.0, 1.0], max_tokens=8, concurrency=2, seed=0
)


class ScriptedEndpoint:
    """Group ``good`` has all of its drafts accepted, ``bad`` none; easy text gets deep trees, other text wide ones."""

    def __init__(self):
        self.asked = []

    async def ask(self, question):
        self.asked.append(question)
        if question.category == "chat":
            raise EngineFailedError("it broke")
        depth, nodes = (4, 8) if question.category in ("code", "copy") else (2, 8)
        accepted = depth if question.variant.drafter == "good" else 0
        rounds = (RoundCounts(max(accepted, 1), accepted, nodes, depth),) * 3
        if question.variant.drafter == "silent":
            rounds = (RoundCounts(0, 0),) * 3
        drafting = DraftCounts(3, 3, 3 * accepted, rounds)
        return Recording((), question.prompt, 4, 3 + 3 * accepted, exact_counts=True, drafting=drafting)


def result(cells, setup=SETUP, **options):
    provenance = collect_provenance(config={}, seed=0, argv=["paceline"])
    return evaluation_result(cells, setup, provenance=provenance, records={}, **options)


async def test_every_drafter_is_asked_every_prompt_at_every_temperature():
    """By its name, whatever the router would choose; a prompt has the same seed for all of them."""
    endpoint = ScriptedEndpoint()
    cells = await evaluate(endpoint, SETUP)

    assert [cell.key for cell in cells] == [
        CellKey("own", group, "as served", temperature) for group in ("good", "bad") for temperature in (0.0, 1.0)
    ]
    assert {(q.prompt, q.seed) for q in endpoint.asked} == {
        (prompt.prompt, i) for i, prompt in enumerate(PROMPTS.prompts)
    }
    assert {q.variant.speculation for q in endpoint.asked} == {"on"}
    assert {(q.variant.drafter, q.variant.temperature) for q in endpoint.asked} == {
        (cell.key.group, cell.key.temperature) for cell in cells
    }


async def test_a_failed_prompt_is_told_and_left_out():
    """It counts in no figure, and its reason is in the notes."""
    cells = await evaluate(ScriptedEndpoint(), SETUP)

    assert [len(cell.answers) for cell in cells] == [3] * 4
    assert "some prompts failed with ENGINE_FAILED" in to_markdown(result(cells))


async def test_the_result_says_what_was_accepted_where():
    """Headline, categories, comparison, shapes of trees; as data and as tables."""
    written = result(await evaluate(ScriptedEndpoint(), SETUP), baseline="good")
    tables = {table.title: table for table in written.tables}
    data = json.loads(to_json(written))["data"]
    good = data["cells"][0]

    assert good["figures"]["first"] == [1.0, 1.0, 1.0]
    assert good["figures"]["tau"][0] == pytest.approx((5 + 5 + 3) / 3)
    assert data["cells"][2]["figures"]["first"] == [0.0, 0.0, 0.0]
    assert tables["Accepted drafts a pass over those of good"].rows[0][1] == "0.000 [0.000, 0.000]"
    assert tables["By category: own"].rows[0][1:] == ["1.00 / 5.00", "1.00 / 5.00", "1.00 / 3.00"]
    shapes = tables["Trees on code and copy over those on creative"].rows[0]
    assert shapes[1:] == ["2.000 [2.000, 2.000]", "0.500 [0.500, 0.500]"]


async def test_a_drafter_that_drafts_nothing_is_no_result():
    """It would look like one that is never right."""
    with pytest.raises(ConfigError, match="'silent' drafted nothing"):
        await evaluate(ScriptedEndpoint(), dataclasses.replace(SETUP, groups=["silent"]))


async def test_a_running_deployment_keeps_its_own_budgets():
    """They cannot be set from outside."""
    with pytest.raises(ConfigError, match="leave --budget out"):
        await evaluate(ScriptedEndpoint(), dataclasses.replace(SETUP, budgets=[Budget(5)]))


def test_budgets_are_read_as_they_are_written():
    """Chains and trees."""
    assert (read_budget("5"), read_budget("16x4")) == (Budget(5), Budget(16, 4))
    assert [read_budget(text).name for text in ("5", "16x4")] == ["5", "16x4"]
    for text in ("", "0", "65", "16x17", "x4", "5x"):
        with pytest.raises(ConfigError, match="--budget"):
            read_budget(text)


def test_a_budget_holds_in_every_round():
    """No adaptation to the load, no rounds for other groups."""
    tunables = Budget(16, 4).tunables(Tunables(speculation_enabled=False))

    assert (tunables.max_draft_tokens, tunables.draft_top_k) == (16, 4)
    assert (tunables.draft_adaptive, tunables.shadow_share, tunables.speculation_enabled) == (False, 0.0, True)


def test_the_first_turn_of_spec_bench_is_asked(tmp_path):
    """And so many of each category."""
    path = tmp_path / "spec-bench.jsonl"
    lines = [{"id": i, "category": "qa", "turns": [f"q{i}", "more"]} for i in range(3)]
    path.write_text("\n".join(map(json.dumps, [*lines, {"category": "chat", "prompt": "hi"}])))

    assert read_prompts(path, per_category=2) == PromptSet(
        "spec-bench", (BenchPrompt("qa", "q0"), BenchPrompt("qa", "q1"), BenchPrompt("chat", "hi"))
    )


def test_the_engine_has_room_for_all_that_is_asked_together():
    """And no prefix cache, in which the cells would find each other's prompts."""
    config = evaluation_config(DeploymentConfig(), concurrency=12, room_tokens=4096)

    assert (config.engine.max_running, config.engine.kv_cache_tokens) == (12, 12 * 4096)
    assert not config.engine.prefix_cache
