"""Random rounds of trees, aborts, pre-emption and shared prefixes: no page is lost, and everybody gets on."""

import random

import pytest

from paceline.engine.scheduler import SchedulerLimits
from paceline.errors import ContextLengthExceededError
from paceline.telemetry import catalogue
from paged_rounds import PagedRounds, random_prompt

COUNTED = (catalogue.PREEMPTIONS, catalogue.EVICTED_PAGES, catalogue.PREFIX_HIT_TOKENS)


def progress(rounds: PagedRounds) -> tuple[int, int] | None:
    """How far the oldest unfinished sequence has got; None if there is none."""
    unfinished = [*rounds.scheduler.running, *rounds.scheduler.waiting]
    if not unfinished:
        return None
    oldest = min(unfinished, key=lambda sequence: sequence.arrival)
    return oldest.arrival, len(oldest.tokens) + oldest.num_computed


@pytest.mark.parametrize("page_size", [1, 4])
def test_ten_thousand_random_rounds_lose_nothing_and_starve_nobody(page_size):
    """Whatever comes and goes: used slots are the committed tokens, the prefix tree never held a draft, every slot
    that is read holds the prefix of its reader, the oldest sequence gets on in every round, and all end.
    """
    rng = random.Random(page_size)
    rounds = PagedRounds(rng, num_pages=300 // page_size, page_size=page_size, limits=SchedulerLimits(8, 100, 24))
    submitted = aborted = 0
    for index in range(10_000):
        if rng.random() < 0.3 and len(rounds.scheduler.waiting) < 8:
            try:
                rounds.submit(
                    random_prompt(rng, 60),
                    rng.choice((3, 40, 200)),
                    drafts=rng.choice((0, 3, 9)),
                    salt=rng.choice(("", "b")),
                )
                submitted += 1
            except ContextLengthExceededError:
                pass
        if rng.random() < 0.03 and (unfinished := [*rounds.scheduler.running, *rounds.scheduler.waiting]):
            rounds.scheduler.retire(rng.choice(unfinished), publish=rng.random() < 0.5)
            aborted += 1
        before = progress(rounds)
        rounds.round(rng.choice((0, 4, 64)))
        after = progress(rounds)
        assert before is None or after is None or after > before
        if index % 8 == 0:
            rounds.check()
    for _ in range(2000):
        rounds.round()
    rounds.check()

    assert not rounds.scheduler.has_work
    assert len(rounds.finished) == submitted - aborted > 200
    assert min(rounds.metrics.value(name) for name in COUNTED) > 50
    rounds.scheduler.room.prefixes.clear()
    assert rounds.pool.num_free == rounds.pool.num_pages
