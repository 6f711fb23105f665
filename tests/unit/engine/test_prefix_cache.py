"""What was computed once is not computed again, and nothing else changes: cached or not, the tokens are the same."""

import pytest

from engine_harness import Harness
from paceline.errors import EngineFailedError
from script_drafters import ScriptDrafter
from toy_target import ToyRunner, hashed_law

VOCAB = 12
LAW = hashed_law(VOCAB, scale=2.0)
LONG = tuple(n * 7 % VOCAB for n in range(100))


def harness(*, page_size=1, **options):
    return Harness(ToyRunner(LAW, VOCAB, page_size=page_size), **options)


def answer(engine, key, prompt, **options):
    """Run one request to its end; its ids and its cached prompt tokens."""
    engine.submit(key, prompt, **options)
    engine.run()
    return engine.ids(key), engine.last(key).stats.cached_tokens


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("drafter", [None, "wrong"])
def test_the_second_turn_of_a_chat_computes_only_what_is_new(page_size, drafter):
    """A tool result behind an answer: prompt and answer come from the cache, all but the last token's page of them."""
    wrong = {"wrong": ScriptDrafter(lambda *_: (1, 2, 3))}
    engine = harness(page_size=page_size, drafters=wrong)
    first, cached = answer(engine, "one/1", LONG, drafter=drafter)
    assert cached == 0
    previous = len(LONG) + len(first)
    second = (*LONG, *first, 3, 1, 4, 1, 5)
    ids, cached = answer(engine, "two/1", second, drafter=drafter)

    assert previous - page_size <= cached < len(second)
    assert ids == answer(harness(prefix_cache=False), "two/1", second)[0]
    assert engine.counted("PREFIX_HIT_TOKENS") == cached


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_prompt_that_is_known_to_its_end_still_gives_logits(page_size):
    """A hit never covers the whole prompt: the last token is computed for what follows it."""
    engine = harness(page_size=page_size)
    reference = answer(engine, "one/1", LONG)[0]
    engine.runner.passes.clear()
    ids, cached = answer(engine, "two/1", LONG)

    assert ids == reference
    assert cached == (len(LONG) - 1) // page_size * page_size
    assert engine.runner.passes[0] == [(len(LONG) - cached, 1)]


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_request_that_shares_a_prefix_of_any_length_gets_its_own_tokens(page_size):
    """Cut anywhere, also inside the first answer that rejected drafts have passed through: cache on and off agree."""
    plain = harness(prefix_cache=False)
    first = answer(plain, "first", LONG[:10])[0]
    text = (*LONG[:10], *first)
    for cut in range(1, len(text), 3):
        engine = harness(page_size=page_size, drafters={"wrong": ScriptDrafter(lambda *_: (1, 2, 3))})
        assert answer(engine, "one/1", LONG[:10], drafter="wrong")[0] == first
        prompt = (*text[:cut], (text[cut] + 1) % VOCAB, 5)
        ids, cached = answer(engine, "two/1", prompt, drafter="wrong", seed=2)

        assert ids == answer(plain, f"cut {cut}", prompt, seed=2)[0]
        assert cached == cut // page_size * page_size
    plain.engine.check_integrity()


def test_choices_compute_their_prompt_once():
    """Four choices: one prefill, and a token each for the other three; only the first one's count is saved nothing."""
    engine = harness()
    engine.submit("four/1", LONG, num_choices=4, temperature=1.0)
    engine.run()
    alone = harness(prefix_cache=False)
    alone.submit("four/1", LONG, num_choices=4, temperature=1.0)
    alone.run()

    assert engine.runner.passes[:2] == [[(100, 1)], [(1, 1), (1, 1), (1, 1), (1, 1)]]
    for choice in range(4):
        assert engine.ids("four/1", choice) == alone.ids("four/1", choice)
    assert [engine.last("four/1", choice).stats.cached_tokens for choice in range(4)] == [0, 99, 99, 99]


def test_a_request_waits_for_another_that_computes_its_prefix_and_lets_others_by():
    """Of two requests that begin alike the later one waits; one that begins otherwise does not wait for it."""
    engine = harness(step_tokens=40)
    other = tuple((token + 1) % VOCAB for token in LONG)
    engine.submit("first/1", LONG)
    engine.submit("alike/1", (*LONG[:90], 1, 2))
    engine.submit("other/1", other[:30])
    engine.engine.step()

    assert [sequence.key for sequence in engine.scheduler.running] == ["first/1", "other/1"]
    engine.run()
    assert engine.last("alike/1").stats.cached_tokens >= 90
    assert engine.ids("alike/1") == answer(harness(), "alike/1", (*LONG[:90], 1, 2))[0]


@pytest.mark.parametrize("choices", [1, 40])
def test_many_that_wait_for_one_prefix_cost_a_step_little(monkeypatch, choices):
    """The prefix of few requests is looked up in a step, however many wait and however many choices they have."""
    engine = harness(step_tokens=40)
    looked_up, num_known = [], engine.scheduler.room.num_known
    monkeypatch.setattr(engine.scheduler.room, "num_known", lambda s: looked_up.append(s.key) or num_known(s))
    engine.submit("first/1", LONG)
    for index in range(40 // choices):
        engine.submit(f"r{index}/1", LONG, num_choices=choices, max_tokens=2)
    engine.engine.step()

    assert 0 < len(looked_up) <= (16 if choices == 1 else 1)
    engine.run()
    assert {engine.last(f"r{index}/1").stats.cached_tokens for index in range(40 // choices)} == {99}


def test_a_request_goes_on_by_itself_when_the_one_it_waits_for_ends():
    """An abort in the middle of the prefill leaves what was computed, and nobody waits for the rest."""
    engine = harness(step_tokens=40)
    engine.submit("first/1", LONG)
    engine.submit("alike/1", LONG)
    engine.engine.step()
    engine.engine.abort("first/1")
    engine.run()

    assert engine.last("alike/1").stats.cached_tokens == 40
    assert len(engine.ids("alike/1")) == 24


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_prefix_that_two_computed_at_the_same_time_is_kept_once(page_size):
    """Short common prefixes are not waited for; the second copy goes back when its prompt is published."""
    engine = harness(page_size=page_size)
    for number in range(3):
        engine.submit(f"r{number}/1", (*LONG[:24], number, 1, 2, 3))
    for _ in range(2):
        engine.engine.step()

    own = engine.runner.pool.pages_for(24 + 4 + 1) - 24 // page_size  # pages of each, behind the common ones
    assert engine.runner.pool.num_held == 24 // page_size + 3 * own
    engine.run()
    for number in range(3):
        assert engine.ids(f"r{number}/1") == answer(harness(), "alone/1", (*LONG[:24], number, 1, 2, 3))[0]


def test_tenants_do_not_see_each_other_s_prefixes():
    """The same prompt of another tenant is computed anew."""
    engine = harness()
    answer(engine, "a/1", LONG, tenant_salt="a")

    assert answer(engine, "b/1", LONG, tenant_salt="b")[1] == 0
    assert answer(engine, "c/1", LONG, tenant_salt="a")[1] == 99


def test_a_failed_step_leaves_nothing_in_the_cache():
    """Whatever broke a pass may have touched K/V, so that nothing of the time before is used again."""
    engine = harness()
    answer(engine, "one/1", LONG)
    engine.submit("broken/1", LONG)
    engine.engine.fail_all(EngineFailedError("test"))
    engine.engine.check_integrity()

    assert engine.runner.pool.num_free == engine.runner.pool.num_pages
    assert answer(engine, "two/1", LONG)[1] == 0


def test_a_full_pool_gives_up_old_prefixes_and_nobody_is_pre_empted():
    """Many different prompts, one after the other: each finds room, drafts included."""
    engine = Harness(ToyRunner(LAW, VOCAB, page_size=1, num_pages=160), {"wrong": ScriptDrafter(lambda *_: (1, 2, 3))})
    for number in range(8):
        prompt = (number, *LONG[:99])
        engine.submit(f"r{number}/1", prompt, drafter="wrong")
        engine.run()
        assert engine.ids(f"r{number}/1") == answer(harness(), "alone/1", prompt)[0]

    assert engine.counted("EVICTED_PAGES") > 500
    assert engine.counted("PREEMPTIONS") == 0
    assert engine.counted("DRAFTED_TOKENS", group="wrong") > 8 * 50
