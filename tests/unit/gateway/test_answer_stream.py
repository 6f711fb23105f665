"""Answers over attempts that fail: what the client gets is what it would have got."""

import asyncio
import contextlib
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stub_pool
import virtual_time
from paceline.core.generation import GenerationRequest, TokenLogprob
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.errors import (
    DeadlineExceededError,
    EngineFailedError,
    OverloadedError,
    RequestAbandonedError,
    StreamGapError,
    TargetLeavingError,
    TargetLostError,
    TargetUnavailableError,
)
from paceline.gateway.answer_progress import AnswerProgress
from paceline.gateway.answer_stream import AnswerStreams
from paceline.gateway.chunk_stream import ChunkStream
from paceline.gateway.target_pool import PlaceWish
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

LOST = TargetLostError("it died")
LEAVING = TargetLeavingError("it is drained")
REQUEST = GenerationRequest("r/1", (3, 4, 5), SamplingParams(max_tokens=500), 7, Plan(Route.PLAIN, "because"))
ANSWER = "The fox 안녕 \U0001f1f0\U0001f1f7 says: jump over 세계, then stop."
BYTES = stub_pool.tiny_tokenizers.text_tokenizer("byte_fallback")


@dataclasses.dataclass
class Received:
    """What a client has of a request; ``error`` is what broke it off."""

    num_choices: int
    ids: list[list[int]] = dataclasses.field(default_factory=list)
    texts: list[str] = dataclasses.field(default_factory=list)
    logprobs: list[list[TokenLogprob]] = dataclasses.field(default_factory=list)
    finishes: list[str] = dataclasses.field(default_factory=list)
    stats: dict = dataclasses.field(default_factory=dict)
    error: Exception | None = None

    def __post_init__(self):
        self.ids = [[] for _ in range(self.num_choices)]
        self.texts = [""] * self.num_choices
        self.logprobs = [[] for _ in range(self.num_choices)]
        self.finishes = [""] * self.num_choices

    def add(self, chunk):
        index = chunk.choice
        assert (chunk.first_index, chunk.text_offset) == (len(self.ids[index]), len(self.texts[index]))
        assert not self.finishes[index], "a choice went on after its end"
        self.ids[index] += chunk.token_ids
        self.texts[index] += chunk.text
        self.logprobs[index] += chunk.logprobs
        self.finishes[index] = chunk.finish.value if chunk.finish else ""

    @property
    def answer(self):
        return self.ids, self.texts, self.logprobs, self.finishes


async def _receive(pool, request, *, metrics=None, wish=PlaceWish(), replan=lambda plan: plan):  # noqa: B008  # frozen
    streams = AnswerStreams(pool, metrics or Metrics(strict=True))
    received = Received(request.num_choices)
    batches = streams.stream(request, wish, AnswerProgress(request.num_choices), replan)
    started_s = asyncio.get_running_loop().time()
    stream = ChunkStream(batches, num_choices=request.num_choices, deadline_s=900.0, started_s=started_s)
    try:
        while (batch := await stream.next_batch()) is not None:
            for chunk in batch:
                received.add(chunk)
    except Exception as error:  # noqa: BLE001  # whatever it is, the test looks at it
        received.error = error
    finally:
        await stream.close()
    received.stats = stream.stats
    return received


def _run(request=REQUEST, *, metrics=None, wish=PlaceWish(), replan=lambda plan: plan, **pool):  # noqa: B008  # frozen
    """What a client receives, and the pool that served it; no time passes."""
    pool = stub_pool.StubPool(**{"tokenizer": BYTES, "answer": ANSWER} | pool)
    return virtual_time.run(_receive(pool, request, metrics=metrics, wish=wish, replan=replan)), pool


def _counted(metrics, counter):
    counts = {reason: metrics.value(counter, reason=reason) for reason in ("lost", "leaving", "refused")}
    return {reason: count for reason, count in counts.items() if count}


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_an_answer_over_many_attempts_is_the_undisturbed_one(data):
    """Ids, text, logprobs and ends: whatever the choices, stop strings, chunks, and places where attempts end."""
    sampling = SamplingParams(
        max_tokens=data.draw(st.sampled_from([1, 7, 30, 500]), "max_tokens"),
        stop=data.draw(
            st.sampled_from([(), ("stop",), ("안녕", "over 세"), ("\U0001f1f0",), ("nothing such", ".")]), "stop"
        ),
        logprobs=data.draw(st.sampled_from([None, 0, 2]), "logprobs"),
    )
    request = dataclasses.replace(REQUEST, sampling=sampling, num_choices=data.draw(st.integers(1, 3), "n"))
    how = st.sampled_from([LOST, LEAVING, EngineFailedError("x"), StreamGapError(1, 2), stub_pool.END, stub_pool.ABORT])
    # Attempts that get on: one that does not may not be followed by many others.
    failures = data.draw(st.lists(st.tuples(st.integers(1, 6), how), max_size=3), "failures")
    blocks = data.draw(st.lists(st.integers(1, 9), min_size=4, max_size=4), "blocks")
    uneven = data.draw(st.booleans(), "uneven")

    undisturbed, _ = _run(request, uneven=uneven)
    received, pool = _run(request, failures=failures, blocks=blocks, uneven=uneven)

    assert received.error is None
    assert received.answer == undisturbed.answer
    assert all(stats.prompt_tokens == 3 for stats in received.stats.values())
    assert max(stats.resumed for stats in received.stats.values()) <= len(pool.requests) - 1
    for index, stats in received.stats.items():
        assert stats.completion_tokens == len(received.ids[index])
        assert stats.replayed >= 0


@pytest.mark.parametrize("how", [LOST, LEAVING, EngineFailedError("x"), stub_pool.END, stub_pool.ABORT], ids=str)
@pytest.mark.parametrize("first", [0, 1, 3])
def test_every_kind_of_end_is_followed_by_another_attempt(how, first):
    """Before the first token and in mid-answer."""
    undisturbed, _ = _run()
    received, pool = _run(failures=[(first, how)])

    assert received.answer == undisturbed.answer
    assert [request.key for request in pool.requests] == ["r/1", "r/2"]
    assert received.stats[0].resumed == (1 if first else 0)
    assert [bool(request.resumed) for request in pool.requests] == [False, bool(first)]


def test_a_further_attempt_is_the_same_request_with_what_has_arrived():
    """Prompt, seed and limits stay, so that the tokens are the same; the plan is made again from the last one."""
    plans = [Plan(Route.SPECULATIVE, "two", "ngram", 3), Plan(Route.PLAIN, "three")]
    asked = []

    def replan(plan):
        asked.append(plan)
        return plans[len(asked) - 1]

    _, pool = _run(failures=[(1, LOST), (1, LEAVING)], block=4, replan=replan)

    first, second, third = pool.requests
    assert asked == [REQUEST.plan, plans[0]]
    assert [request.plan for request in pool.requests] == [REQUEST.plan, *plans]
    assert len(third.resumed[0].output_token_ids) == 2 * len(second.resumed[0].output_token_ids) == 8
    for request in (second, third):
        assert dataclasses.replace(request, key="r/1", resumed=(), plan=first.plan) == first


def test_the_target_hears_of_the_time_that_is_left():
    """A further attempt has what the earlier ones have not used."""
    _, pool = _run(failures=[(2, LOST)], delay_s=10.0, wish=PlaceWish(deadline=600.0))

    assert [request.deadline_s for request in pool.requests] == [600.0, 570.0]


def test_the_place_of_a_resume_has_the_same_fingerprint_and_is_not_the_failed_one():
    """Also where the first attempt was lost before its first token: then any fingerprint will do."""
    replicas = {"a": "fp-1", "b": "fp-2", "c": "fp-1", "d": "fp-2"}
    _, pool = _run(failures=[(0, LOST), (1, LEAVING)], fingerprints=replicas)

    assert [(wish.resumed, wish.fingerprint, set(wish.exclude)) for wish in pool.wishes] == [
        (False, None, set()),
        (True, None, {"a"}),
        (True, "fp-2", {"a", "b"}),
    ]


@pytest.mark.parametrize(("how", "waits_s"), [(LOST, 30.0), (LEAVING, 30.0), (EngineFailedError("x"), 1.0)])
def test_the_only_replica_gets_the_answer_back_if_it_is_still_there_later(how, waits_s):
    """One that was silent for a while is not lost for good."""
    undisturbed, _ = _run()

    async def timed(pool):
        received = await _receive(pool, REQUEST)
        return received, asyncio.get_running_loop().time()

    pool = stub_pool.StubPool(tokenizer=BYTES, answer=ANSWER, failures=[(2, how)], fingerprints={"only": "fp"})
    received, took_s = virtual_time.run(timed(pool))

    assert received.answer == undisturbed.answer
    assert took_s == waits_s


def test_no_replica_to_go_on_on_is_an_error_and_no_end():
    """Another model than the answer began with does not go on with it; at the deadline the client is told."""
    pool = stub_pool.StubPool(tokenizer=BYTES, answer=ANSWER, failures=[(2, LOST)], fingerprints={"a": "1", "b": "2"})

    async def alone():
        receiving = asyncio.create_task(_receive(pool, REQUEST))
        await asyncio.sleep(1)
        del pool.fingerprints["a"]
        return await receiving

    received = virtual_time.run(alone())
    assert isinstance(received.error, DeadlineExceededError)
    assert received.finishes == [""]
    assert len(received.ids[0]) == 8


@pytest.mark.parametrize(("before", "deaths"), [(0, 2), (2, 3)])
def test_a_request_that_kills_its_targets_is_refused(before, deaths):
    """After two deaths, after three where the first came in mid-answer; the error says so."""
    metrics = Metrics(strict=True)
    received, pool = _run(fail_with=LOST, fail_after=before, metrics=metrics)

    assert isinstance(received.error, RequestAbandonedError)
    assert len(pool.requests) == deaths
    assert received.finishes == [""]
    assert _counted(metrics, catalogue.RESUMES if before else catalogue.RETRIES) == {"lost": deaths - 1}
    assert _counted(metrics, catalogue.RETRIES if before else catalogue.RESUMES) == {}


def test_resumes_and_retries_are_counted_by_reason():
    """Refusals in between are counted as such."""
    metrics = Metrics(strict=True)
    gone = TargetUnavailableError("gone")
    failures = [(0, gone), (0, LOST), (2, LEAVING), (0, gone), (1, EngineFailedError("x"))]
    received, _ = _run(failures=failures, metrics=metrics)

    assert received.error is None
    assert _counted(metrics, catalogue.RETRIES) == {"refused": 1, "lost": 1}
    assert _counted(metrics, catalogue.RESUMES) == {"leaving": 1, "refused": 1, "lost": 1}
    assert received.stats[0].resumed == 2


@pytest.mark.parametrize("error", [OverloadedError("the queue", 1.0), TargetUnavailableError("nobody")])
def test_who_waits_for_a_place_in_vain_does_not_wait_again(error):
    """The pool's own refusal of a new request reaches the client as it is."""

    class Full(stub_pool.StubPool):
        def place(self, wish):
            self.wishes.append(wish)
            raise error

    pool = Full()
    received = virtual_time.run(_receive(pool, REQUEST))

    assert received.error is error
    assert len(pool.wishes) == 1


def test_an_error_behind_the_last_token_repeats_nothing():
    """The answer is whole; how its stream ended does not matter any more."""

    class Late(stub_pool.StubPool):
        async def stream(self, request):
            async for batch in super().stream(request):
                yield batch
            raise LOST

    pool = Late(tokenizer=BYTES, answer=ANSWER)
    received = virtual_time.run(_receive(pool, REQUEST))

    assert (received.error, received.finishes) == (None, ["stop"])
    assert len(pool.requests) == 1


def test_a_client_that_leaves_between_two_attempts_leaves_nothing():
    """No attempt is begun for nobody."""
    pool = stub_pool.StubPool(failures=[(1, LOST)], fingerprints={"a": "fp"})

    async def leave():
        receiving = asyncio.create_task(_receive(pool, REQUEST))
        await asyncio.sleep(5)
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        await asyncio.sleep(60)

    virtual_time.run(leave())
    assert (len(pool.requests), pool.running) == (1, 0)


def test_the_one_that_kills_targets_dies_alone():
    """Answers that moved together with the killer go on while it is refused after two deaths."""

    class Fleet(stub_pool.StubPool):
        """Replicas that die under the request "killer", with all that they run; each next one takes over."""

        replica = 0

        async def stream(self, request):
            replica = self.replica
            async for batch in super().stream(request):
                await asyncio.sleep(1)
                if request.key.startswith("killer") and len(self.requests) > 2:
                    self.replica = replica + 1
                if self.replica != replica:
                    raise LOST
                yield batch

    pool = Fleet(tokenizer=BYTES, answer=ANSWER)

    async def all_of_them():
        streams = AnswerStreams(pool, Metrics(strict=True))
        names = ["one", "two", "killer", "three", "four"]

        async def one(name):
            request = dataclasses.replace(REQUEST, key=f"{name}/1")
            batches = streams.stream(request, PlaceWish(), AnswerProgress(1), lambda plan: plan)
            return [token_id async for batch in batches for chunk in batch for token_id in chunk.token_ids]

        return dict(zip(names, await asyncio.gather(*map(one, names), return_exceptions=True), strict=True))

    endings = virtual_time.run(all_of_them())

    assert isinstance(endings.pop("killer"), RequestAbandonedError)
    assert pool.replica == 2
    assert list(endings.values()) == [list(pool.script)] * 4


def test_a_client_that_does_not_read_holds_up_no_other_answer():
    """The turn to go on ends with the token, not when the client has taken it."""
    pool = stub_pool.StubPool(tokenizer=BYTES, answer=ANSWER, failures=[(1, LOST), (1, LOST)])

    async def went_on_at():
        streams = AnswerStreams(pool, Metrics(strict=True))
        moments = []

        async def reader(name, pause_s):
            request = dataclasses.replace(REQUEST, key=f"{name}/1")
            batches = streams.stream(request, PlaceWish(), AnswerProgress(1), lambda plan: plan)
            async with contextlib.aclosing(batches):
                for _ in range(2):
                    await anext(batches)
                    moments.append(asyncio.get_running_loop().time())
                await asyncio.sleep(pause_s)

        await asyncio.gather(reader("slow", 100.0), reader("quick", 0.0))
        return moments

    assert virtual_time.run(went_on_at()) == [0.0] * 4
