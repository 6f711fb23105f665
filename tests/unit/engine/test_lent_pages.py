"""A head works in the pages of the sequences that run: what it has computed goes with them, and nothing else does."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.engine.lent_pages import LentPages
from paceline.engine.scheduler import SchedulerLimits
from paceline.engine.sequence import Sequence
from paceline.engine.session_ledger import session_name
from paceline.engine.step_plan import PlannedRow
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.head_memory import HeadMemory
from paceline.telemetry import catalogue
from paged_rounds import PagedRounds, random_prompt

PROMPT = tuple(place % 3 for place in range(24))


class HeadStore:
    """Stands in for the K/V of a head: a slot holds the hash of the text that it was computed for; -1: some guess."""

    def __init__(self) -> None:
        self.texts: dict[int, int] = {}

    def move(self, moves: list[tuple[int, int]]) -> None:
        held = [(target, self.texts.get(source, -1)) for source, target in moves]
        self.texts.update(held)


class HeadRounds(PagedRounds):
    """Rounds in which a head drafts before each pass, in the slots of the pass, as `HeadDrafter` does."""

    def __init__(self, rng: random.Random, *, num_pages: int, page_size: int, limits: SchedulerLimits) -> None:
        super().__init__(rng, num_pages=num_pages, page_size=page_size, limits=limits)
        self.store = HeadStore()
        nothing: Any = None  # features are looked for in `written`: they lie where the target's K/V lie
        store: Any = self.store
        self.memory = HeadMemory(self.pool, store, nothing)
        self.lent = LentPages(self.scheduler)
        self.wakes = 1.0  # share of rows that are drafted for
        self.recomputed: list[int] = []  # places that the head computed, of all rows

    def table_of(self, sequence: Sequence) -> PageTable | None:
        return self.lent.table_of(session_name(sequence.key, sequence.choice))

    def missing(self, sequence: Sequence) -> list[int]:
        """Places before the newest token that the head has not computed."""
        assert sequence.table is not None
        computed = self.memory.computed[sequence.table.slots(0, sequence.num_computed)]
        return [place for place in range(1, sequence.num_computed) if not computed[place]]

    def _compute(self, row: PlannedRow) -> list[int]:
        lent = self.table_of(row.sequence)
        assert (lent is not None) == row.sequence.decoding
        if lent is not None and row.max_drafts and self.rng.random() < self.wakes:
            self._draft(row, lent)
        parents = super()._compute(row)
        assert row.sequence.table is not None
        slots = row.sequence.table.slots(row.start, row.stop + len(parents))
        self.memory.written(np.array(slots, np.int32))
        return parents

    def _draft(self, row: PlannedRow, table: PageTable) -> None:
        tokens, newest = row.sequence.tokens, row.stop - 1
        slots, held = table.slots(0, newest), table.num_pages
        missing = self.missing(row.sequence)
        for place in range(1, newest):
            assert self.written[slots[place - 1]] == tokens.hash_at(place)  # the feature of the token
            if place not in missing:
                assert self.store.texts[slots[place]] == tokens.hash_at(place + 1)
        for place in missing:
            self.store.texts[slots[place]] = tokens.hash_at(place + 1)
        self.memory.computed[slots[1:]] = True
        self.recomputed += missing
        table.extend_to(row.stop + row.max_drafts)  # what was promised for the pass
        self.store.texts.update(dict.fromkeys(table.slots(newest, row.stop + row.max_drafts), -1))
        table.truncate(held * self.pool.page_size)

    def _move(self, moves: list[tuple[int, int]]) -> None:
        super()._move(moves)
        self.memory.moved(moves)

    def _forget(self, slots: Any) -> None:
        super()._forget(slots)
        self.memory.freed(slots)
        for slot in slots:
            self.store.texts.pop(int(slot), None)


def rounds_of(page_size: int, *, num_tokens: int = 256, step_tokens: int = 64) -> HeadRounds:
    limits = SchedulerLimits(8, 100, step_tokens)
    return HeadRounds(random.Random(page_size), num_pages=num_tokens // page_size, page_size=page_size, limits=limits)


def run_until(rounds: HeadRounds, reached: Callable[[], bool], max_drafts: int = 3) -> None:
    """Run rounds until ``reached``."""
    for _ in range(500):
        if reached():
            return
        rounds.round(max_drafts)
    raise AssertionError("never reached")


@pytest.mark.parametrize("num_rounds", [4_000, pytest.param(10_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("page_size", [1, 4])
def test_random_rounds_with_a_head(page_size: int, num_rounds: int) -> None:
    """Shared prefixes, pre-emption, aborts, trees, rounds that sleep: what counts as computed always is, for the
    text of whoever reads it; promises cover the head's guesses; no page is lost.
    """
    rng = random.Random(page_size)
    rounds = HeadRounds(rng, num_pages=160 // page_size, page_size=page_size, limits=SchedulerLimits(8, 100, 24))
    rounds.wakes = 0.7
    for index in range(num_rounds):
        if rng.random() < 0.3 and len(rounds.scheduler.waiting) < 8:
            salt = rng.choice(("", "b"))
            rounds.submit(random_prompt(rng, 60), rng.choice((3, 40, 90)), drafts=rng.choice((0, 3, 9)), salt=salt)
        if rng.random() < 0.03 and (unfinished := [*rounds.scheduler.running, *rounds.scheduler.waiting]):
            rounds.scheduler.retire(rng.choice(unfinished), publish=rng.random() < 0.5)
        rounds.round(rng.choice((0, 4, 64)))
        if index % 8 == 0:
            rounds.check()

    counted = (catalogue.PREEMPTIONS, catalogue.EVICTED_PAGES, catalogue.PREFIX_HIT_TOKENS)
    assert min(rounds.metrics.value(name) for name in counted) > 20
    assert len(rounds.recomputed) > 1_000


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_known_prefix_brings_what_the_head_has_computed_of_it(page_size: int) -> None:
    """The second request with the same prompt leaves the head to compute what is behind the shared pages."""
    rounds = rounds_of(page_size)
    first = rounds.submit(PROMPT, 40, drafts=3)
    run_until(rounds, lambda: first.num_output > 4)
    assert min(rounds.missing(first)) >= len(PROMPT)
    second = rounds.submit((*PROMPT, 2, 2, 2), 8, drafts=3)
    run_until(rounds, lambda: second.decoding)
    missing = rounds.missing(second)

    assert second.num_cached == len(PROMPT)
    assert missing == list(range(len(PROMPT), second.num_computed))


@pytest.mark.parametrize("page_size", [1, 4])
def test_after_a_sleep_exactly_the_missing_slots_are_computed(page_size: int) -> None:
    """Rounds without the head leave holes, and only those are filled when it drafts again."""
    rounds = rounds_of(page_size)
    sequence = rounds.submit(PROMPT, 60, drafts=3)
    run_until(rounds, lambda: sequence.num_output > 5)
    rounds.wakes, slept_from = 0.0, sequence.num_computed
    known = set(range(1, slept_from)) - set(rounds.missing(sequence))
    for _ in range(5):
        rounds.round(3)
    length = sequence.num_computed
    rounds.wakes, rounds.recomputed = 1.0, []
    rounds.round(3)

    assert known >= set(range(1, len(PROMPT)))
    assert rounds.recomputed == [place for place in range(1, length) if place not in known]


@pytest.mark.parametrize("page_size", [1, 4])
def test_what_was_pre_empted_is_lent_again_when_it_is_computed_again(page_size: int) -> None:
    """Without pages there is no table, and while it catches up there is none either."""
    rounds = rounds_of(page_size, num_tokens=128, step_tokens=16)
    old = rounds.submit(PROMPT, 60, drafts=3)
    young = rounds.submit((1, *PROMPT), 60, drafts=3)
    run_until(rounds, lambda: young.preemptions > 0)
    assert rounds.table_of(young) is None
    run_until(rounds, lambda: young.decoding)

    assert rounds.table_of(young) is young.table is not None
    assert rounds.table_of(old) is (old.table if old.decoding else None)


def test_an_unknown_session_has_no_table() -> None:
    """Nor has one whose sequence has ended."""
    rounds = rounds_of(4)
    sequence = rounds.submit(PROMPT, 4, drafts=3)
    run_until(rounds, lambda: sequence.decoding, 0)
    assert rounds.lent.table_of("nobody#0") is None
    assert rounds.table_of(sequence) is sequence.table
    run_until(rounds, lambda: not sequence.tokens_left, 0)
    assert rounds.table_of(sequence) is None
