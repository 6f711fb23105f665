"""`bench pass` with real candidates in processes of their own, on a tiny model."""

import pytest

from paceline.bench.pass_bench import run_pass_bench
from paceline.bench.pass_records import PassSetup
from paceline.bench.random_model import save_random_model


@pytest.mark.full
def test_every_candidate_is_measured(tmp_path):
    """Engine, one of Transformers' forms, matrix products, several at a time, and every size of pass."""
    folder = save_random_model(tmp_path)
    prompts = [(index, 2, 3) for index in range(5)]
    setup = PassSetup(
        folder, prompts, dtype="float32", threads=(1,), num_tokens=8, context=16, sizes=(1, 4), repeats=2, parallel=3
    )
    data = run_pass_bench(setup, lambda _: None).data

    assert data["chosen"]["engine"] == {"kind": "engine", "threads": 1}
    assert data["engine_over_stock"]["ratio"] > 0
    assert len(data["v"]["4"]) == 5
    assert [len(block["engine"]) for block in data["blocks"]] == [1] * 5
