"""Planning of a step, without the pass."""

import pytest

from engine_harness import Harness
from toy_target import ToyRunner, hashed_law


@pytest.mark.parametrize("running", [1, 16, 128])
def test_schedule(benchmark, running):
    """A plan for so many decoding sequences; nothing is computed, so that it can be made again and again."""
    runner = ToyRunner(hashed_law(16), 16, num_pages=4096, page_size=16)
    harness = Harness(runner, max_running=running, step_tokens=1024)
    for index in range(running):
        harness.submit(f"r{index}/1", tuple((index + place) % 16 for place in range(20)), max_tokens=100)
    while harness.scheduler.waiting or not all(s.decoding for s in harness.scheduler.running):
        harness.engine.step()

    plan = benchmark(harness.scheduler.schedule, lambda _: 8)
    assert len(plan.rows) == running
