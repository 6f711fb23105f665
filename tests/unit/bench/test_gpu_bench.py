"""The measurement of a device, whole, on a tiny shape and the CPU."""

import pytest
import torch

from paceline.bench.gpu_bench import GpuBench, GpuSetup
from paceline.bench.random_model import TINY
from paceline.bench.report import to_markdown

QUICK = {
    "shape": TINY,
    "device": "cpu",
    "dtype": "float32",
    "sizes": (1, 4),
    "contexts": (16,),
    "batches": (1, 2),
    "batch_context": 16,
    "engine_batches": (2,),
    "alphas": (1.0, 0.0),
    "drafts": (3,),
    "answer_tokens": 24,
    "repeats": 2,
}


@pytest.fixture(scope="module")
def threads():
    """Gives the threads back as they were."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_point_is_measured_and_tau_is_what_the_oracle_was_given(threads):
    """Right drafts are all accepted and wrong ones never, so the extremes of alpha are exact."""
    result = GpuBench(GpuSetup(**QUICK), lambda _: None).run()
    drafting = {entry["alpha"]: entry["tau"] for entry in result.data["drafting"]}

    assert result.data["left_out"] == []
    assert set(result.data["sizes"]["16"]) == {"1", "4"}
    assert set(result.data["batches"]) == {"1 x 1", "1 x 5", "2 x 1", "2 x 5"}
    assert result.data["engine_steps"]["2"]["step_s"] > 0
    assert drafting[0.0] == 1.0
    assert drafting[1.0] > 3.0  # the first and the last round draft less than three
    assert "## Provenance" in to_markdown(result)


def test_what_there_is_no_time_for_is_named(threads):
    """The limit ends the measurement with a result, not without one."""
    result = GpuBench(GpuSetup(**QUICK | {"limit_s": 0.0}), lambda _: None).run()

    assert "v(1) behind 16" in result.data["left_out"]
    assert len(set(result.data["left_out"])) == len(result.data["left_out"])
    assert result.data["drafting"] == []
