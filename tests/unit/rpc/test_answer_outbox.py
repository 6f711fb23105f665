import asyncio
import time

from paceline.core.drafts import NeedSync
from paceline.rpc.answer_outbox import AnswerOutbox


async def test_newest_answer_of_a_session_wins():
    """An answer that was not sent yet is replaced by the session's next one."""
    outbox = AnswerOutbox(max_rows=4)
    assert outbox.put(NeedSync("a", 1)) is None
    assert outbox.put(NeedSync("b", 1)) is None
    assert outbox.put(NeedSync("a", 2)) == "replaced"
    assert outbox.take() == [NeedSync("b", 1), NeedSync("a", 2)]
    assert outbox.take() == []


async def test_full_outbox_drops_whole_rows_oldest_first():
    """What a slow reader does not fetch is bounded, and filling it never waits."""
    outbox = AnswerOutbox(max_rows=2)
    dropped = [outbox.put(NeedSync(name, 0)) for name in "abc"]
    assert dropped == [None, None, "full"]
    assert [reply.session for reply in outbox.take()] == ["b", "c"]


async def test_wait_ends_with_an_answer_a_wake_or_its_time():
    """A writer sleeps until there is something to send, but not for ever."""
    outbox = AnswerOutbox(max_rows=2)
    for act in (lambda: outbox.put(NeedSync("a", 0)), outbox.wake):
        asyncio.get_running_loop().call_later(0.01, act)
        await asyncio.wait_for(outbox.wait(60), 1)
        outbox.take()
    started = time.monotonic()
    await outbox.wait(0.02)
    assert time.monotonic() - started < 1
