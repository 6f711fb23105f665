"""A client that goes away, at whatever moment: the real engine drops its request within one step, the drafter too."""

import asyncio
import contextlib
import threading

import pytest

from paceline.backends.native import NativeBackend
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig
from paceline.core.generation import GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.matching import DrafterFacts, TargetFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.remote_drafter import RemoteDrafter
from paceline.rpc.target_client import TargetConnection
from paceline.rpc.target_server import TargetServicer
from paceline.text.tokenizer import TextTokenizer
from peers import PEER, TOKEN, serving, until
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

GROUP = "g"
PROMPT = (5, 6, 7, 5, 6, 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = save_tiny_model(tmp_path_factory.mktemp("model"), vocab_size=320)
    byte_level().save_pretrained(str(made))
    return made


class SteppedRunner:
    """The engine's passes, each let through by the test, or all of them."""

    def __init__(self, forward):
        self._forward = forward
        self._allowed = threading.Semaphore(0)
        self.num_entered = 0

    def __call__(self, rows):
        self.num_entered += 1
        assert self._allowed.acquire(timeout=20)
        return self._forward(rows)

    def let(self, passes):
        self._allowed.release(passes)


class Deployed:
    """A gateway's connection, a target's engine and a drafter, each behind real gRPC."""

    def __init__(self, folder, **engine):
        self._folder = folder
        self._engine = {"threads": 1, "kv_cache_tokens": 8192, "page_size": 4, **engine}
        self.complaints = []

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        config = DeploymentConfig(
            model=ModelConfig(source=str(self._folder), name="tiny"),
            engine=EngineConfig(**self._engine),
            drafters={GROUP: DrafterConfig(method="ngram")},
        )
        vocabulary = TextTokenizer.load(self._folder, vocab_size=320).vocabulary
        self.drafter = DrafterServicer(NgramDrafter(min_match=1), DrafterFacts("ngram", GROUP))
        self.link = RemoteDrafter(GROUP, hello=TargetFacts(vocabulary, 256), loop=loop, peer=PEER)
        self.backend = NativeBackend.start(self._folder, config=config, drafters={GROUP: self.link})
        self.holds = HoldRegistry(60)
        self._stack = contextlib.AsyncExitStack()
        drafting = await self._stack.enter_async_context(serving(self.drafter))
        decoding = await self._stack.enter_async_context(serving(TargetServicer(self.backend, self.holds)))
        self.link.set_endpoints([Endpoint("drafter", drafting.address, TOKEN)])
        self.gateway = TargetConnection(decoding.address, TOKEN, peer=PEER)
        await until(lambda: self.link.live, 20)
        return self

    async def __aexit__(self, *exc):
        self.link.shutdown()
        await self.gateway.close()
        await self._stack.aclose()
        await self.backend.close()
        self.drafter.close()

    def stepped(self):
        """Passes of the engine only as the test lets them through from now on."""
        runner = self.backend.parts.runner
        runner.forward = SteppedRunner(runner.forward)
        return runner.forward

    @property
    def nothing_is_held(self):
        load = self.backend.snapshot()
        return (
            (load.running, load.waiting, self.holds.num_held) == (0, 0, 0)
            and load.free_pages == load.total_pages
            and self.backend.parts.speculation.num_sessions == 0
            and self.drafter.load.sessions == 0
        )


def request(key, *, max_tokens=100, prompt=PROMPT):
    plan = Plan(Route.SPECULATIVE, "test", GROUP, 4)
    return GenerationRequest(key, prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True), 3, plan)


@pytest.mark.parametrize("moment", ["between tokens", "in a long prefill", "in the queue"])
async def test_the_engine_drops_a_cancelled_request_within_one_step(folder, moment):
    """The pass that runs when the client goes is the last one with its rows; pages and sessions are free after it."""
    async with Deployed(folder, max_running=1, step_tokens=16) as made:
        runner = made.stepped()
        if moment == "in the queue":
            other = asyncio.create_task(_drain(made.gateway.stream(request("other/1", max_tokens=3))))
            await until(lambda: runner.num_entered == 1)
        prompt = tuple(range(5, 205)) if moment == "in a long prefill" else PROMPT
        stream = made.gateway.stream(request("gone/1", prompt=prompt, max_tokens=40))
        reader = asyncio.create_task(anext(stream))
        if moment == "between tokens":
            runner.let(1)
            await reader
            runner.let(4)
            await until(lambda: runner.num_entered == 6)  # the sixth waits to be let through
            await until(lambda: made.drafter.load.sessions == 1)
        elif moment == "in a long prefill":
            runner.let(2)
            await until(lambda: runner.num_entered == 3)
        else:
            await until(lambda: made.holds.num_held == 2)
        under_way = runner.num_entered

        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        await stream.aclose()
        await until(lambda: made.holds.num_held == (moment == "in the queue"))  # the target has heard of it
        runner.let(1)

        if moment == "in the queue":
            runner.let(10)
            assert len(await other) == 3
        await until(lambda: made.nothing_is_held)
        assert runner.num_entered <= under_way + (2 if moment == "in the queue" else 0)
        made.backend.parts.engine.check_integrity()
        assert not made.complaints


async def test_300_requests_dropped_at_once_leave_nothing(folder):
    """All clients go after 0.1 s, most of them while they wait: 2 s later no choice, page, place or session is left."""
    async with Deployed(folder) as made:
        streams = [made.gateway.stream(request(f"r{number}/1")) for number in range(300)]
        readers = [asyncio.create_task(_drain(stream)) for stream in streams]
        await until(lambda: made.drafter.load.sessions > 0, 20)
        await asyncio.sleep(0.1)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

        await until(lambda: made.nothing_is_held, 2.0)

        made.backend.parts.engine.check_integrity()
        assert len(await _drain(made.gateway.stream(request("after/1", max_tokens=5)))) == 5
        await until(lambda: made.nothing_is_held)
        assert not made.complaints


async def test_an_abort_ends_one_attempt_and_no_other(folder):
    """Sent twice, of an attempt that is over or unknown, and late, while the next attempt of the request runs."""
    async with Deployed(folder) as made:
        runner = made.stepped()
        first = asyncio.create_task(_drain(made.gateway.stream(request("r/1", max_tokens=100))))
        await until(lambda: runner.num_entered == 1)
        await made.gateway.abort("r/1")
        await made.gateway.abort("r/1")
        runner.let(1)
        await first
        await until(lambda: made.nothing_is_held)

        second = asyncio.create_task(_drain(made.gateway.stream(request("r/2", max_tokens=20))))
        await until(lambda: made.backend.snapshot().running == 1)
        for key in ("r/1", "r/3", "unknown/1"):
            await made.gateway.abort(key)
        await until(lambda: made.drafter.load.sessions == 1)
        runner.let(100)
        assert len(await second) == 20
        await until(lambda: made.nothing_is_held)


async def _drain(stream):
    return [token for batch in [batch async for batch in stream] for chunk in batch for token in chunk.token_ids]
