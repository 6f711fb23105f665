import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from draft_dialogue import opening, replies, row
from drafters import OracleDrafter
from paceline.core.drafts import DraftProposal, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.remote_drafter import RemoteDrafter
from peers import PEER, TARGET, TOKEN, LoopThread, loop_thread, remote, wait_until

TEXT = tuple(range(1, 12))
FACTS = DrafterFacts("ngram", "g")

_REPLICA = """
import asyncio, sys
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.rpc.link_server import DrafterServicer
from peers import serving

async def main():
    async with serving(DrafterServicer(NgramDrafter(), DrafterFacts("ngram", "g"))) as server:
        sys.stdout.write(server.address + "\\n")
        sys.stdout.flush()
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def thread():
    with loop_thread() as made:
        yield made


def start_replica() -> tuple["subprocess.Popen[str]", str]:
    """A drafter replica in a process of its own, and its address."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, "-c", _REPLICA], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_two_hundred_sessions_share_one_link(thread):
    """Two hundred sessions all progress over one stream; none waits a second for its turn."""
    names = [f"s{index}" for index in range(200)]
    with remote(thread, NgramDrafter(), FACTS) as link:
        link.open([opening(name) for name in names])
        tokens = HashedTokens([1, 2, 3, 4] * 4)
        base = 0
        for round_ in range(10):
            started = time.monotonic()
            link.request([row(tokens, base, depth=3, session=name) for name in names])
            answered = {reply.session for reply in replies(link) if isinstance(reply, DraftProposal)}
            assert answered == set(names), f"round {round_}"
            assert time.monotonic() - started < 1.0
            base = len(tokens)
            tokens.extend([1 + base % 4])
        assert link.load.sessions == 200
        link.close(names)
        wait_until(lambda: link.load.sessions == 0, 3.0)


def test_engine_thread_never_waits_for_the_loop(thread):
    """While the asyncio loop is stuck, everything but a `collect` with patience returns at once."""
    with remote(thread, OracleDrafter([TEXT]), DrafterFacts("oracle", "g")) as link:
        stuck = threading.Event()
        thread.loop.call_soon_threadsafe(stuck.wait, 2)
        started = time.monotonic()
        link.open([opening("s"), opening("t")])
        link.request([row(HashedTokens(TEXT[:4]), 0, depth=3)])
        assert link.collect(0.0) == []
        assert link.num_pending == 1
        link.close(["t"])
        assert time.monotonic() - started < 0.2
        assert link.collect(0.05) == []
        assert 0.05 <= time.monotonic() - started < 0.5
        stuck.set()
        (reply,) = replies(link)
        assert reply.tree.token_ids == TEXT[4:7]


def test_wait_ends_when_the_link_breaks(thread):
    """An engine that waits for an answer is released by the loss of the link, not by its time-out."""
    process, address = start_replica()
    link = RemoteDrafter("g", hello=TARGET, loop=thread.loop, peer=PEER)
    link.set_endpoints([Endpoint("r", address, TOKEN)])
    wait_until(lambda: link.live)
    process.send_signal(signal.SIGSTOP)
    link.open([opening()])
    link.request([row(HashedTokens(TEXT[:4]), 0, depth=3)])
    killer = threading.Timer(0.2, process.kill)
    killer.start()
    started = time.monotonic()
    assert link.collect(10.0) == []
    assert time.monotonic() - started < 3.0
    assert not link.live
    process.wait(5)
    link.shutdown()


def test_killed_process_is_replaced_and_sessions_start_again(thread):
    """After `kill -9` the next replica is linked, and the lost row is answered by NeedSync(0)."""
    first, first_address = start_replica()
    second, second_address = start_replica()
    link = RemoteDrafter("g", hello=TARGET, loop=thread.loop, peer=PEER)
    link.set_endpoints([Endpoint("r1", first_address, TOKEN)])
    wait_until(lambda: link.live)
    killed = link.incarnation
    first.send_signal(signal.SIGSTOP)
    link.open([opening()])
    tokens = HashedTokens([1, 2, 3, 1, 2])
    link.request([row(tokens, 0, depth=2)])
    first.kill()
    link.set_endpoints([Endpoint("r1", first_address, TOKEN), Endpoint("r2", second_address, TOKEN)])
    wait_until(lambda: link.live and link.incarnation != killed, 10.0)
    assert link.collect(1.0) == [NeedSync("s", 0)]
    link.request([row(tokens, 0, depth=2)])
    (reply,) = replies(link)
    assert isinstance(reply, DraftProposal)
    assert reply.tree.token_ids == (3, 1)
    link.shutdown()
    for process in (first, second):
        process.kill()
        process.wait(5)


def test_wrong_token_is_said_and_tried_again(thread):
    """A replica that does not know the token gives no link; with the right one the link comes up."""
    with remote(thread, NgramDrafter(), FACTS) as good:
        address = _address_of(good, thread)
        link = RemoteDrafter("g", hello=TARGET, loop=thread.loop, peer=PEER)
        link.set_endpoints([Endpoint("r", address, "stale")])
        wait_until(lambda: "token" in link.detail)
        assert not link.live
        link.set_endpoints([Endpoint("r", address, TOKEN)])
        wait_until(lambda: link.live, 5.0)
        link.shutdown()


def _address_of(link: RemoteDrafter, thread: LoopThread) -> str:
    return thread.call(lambda: link._runner._chooser._endpoints[0].address)


def test_reply_time_and_load_are_reported(thread):
    """The engine can see how long answers take and how busy the drafter is."""
    with remote(thread, NgramDrafter(), FACTS) as link:
        assert link.rtt_ms is None
        link.open([opening()])
        link.request([row(HashedTokens(TEXT), 0, depth=2)])
        replies(link)
        assert link.rtt_ms is not None
        assert 0 < link.rtt_ms < 1000
        assert link.load.sessions == 1
        assert link.facts is not None
        assert link.facts.context_length == TARGET.context_length


def test_shutdown_is_final(thread):
    """After shutdown no link comes back, whatever the list says."""
    with remote(thread, NgramDrafter(), FACTS) as link:
        link.shutdown()
        link.shutdown()
        link.set_endpoints([Endpoint("x", _address_of(link, thread), TOKEN)])
        time.sleep(0.2)
        assert not link.live
        assert link.detail == "shut down"
