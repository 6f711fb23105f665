import asyncio

import pytest

from paceline.core.generation import FinishReason, GenerationChunk
from paceline.errors import DeadlineExceededError, EngineFailedError, TargetUnavailableError
from paceline.gateway.chunk_stream import ChunkStream


def _chunk(choice=0, finish=None):
    return GenerationChunk("k/1", choice, 0, (5,), "x", 0, finish=finish)


def _stream(source, *, num_choices=1, deadline_s=10.0):
    started = asyncio.get_running_loop().time()
    return ChunkStream(source, num_choices=num_choices, deadline_s=deadline_s, started_s=started)


class _Source:
    """An async generator that remembers how it ended."""

    def __init__(self, *batches, hang=False, error=None):
        self.batches, self.hang, self.error = batches, hang, error
        self.end = None

    async def run(self):
        try:
            for batch in self.batches:
                yield batch
            if self.error:
                raise self.error
            if self.hang:
                await asyncio.sleep(60)
            self.end = "natural"
        finally:
            self.end = self.end or "cut"


async def test_a_finished_stream_ends_by_itself():
    """After the last chunk of every choice the source is not cut off, so nothing counts as aborted."""
    source = _Source([_chunk(0, FinishReason.STOP)], [_chunk(1, FinishReason.LENGTH)])
    stream = _stream(source.run(), num_choices=2)

    while await stream.next_batch() is not None:
        pass
    await stream.close()

    assert stream.outcome == "length"
    assert source.end == "natural"


async def test_an_unfinished_stream_is_cut():
    """Leaving in the middle closes the source at once."""
    source = _Source([_chunk()], hang=True)
    stream = _stream(source.run())
    await stream.next_batch()

    await asyncio.wait_for(stream.close(), 1)

    assert stream.outcome == "abort"
    assert source.end == "cut"


async def test_half_an_answer_is_an_error():
    """A source that stops before every choice has finished never looks like a normal end."""
    stream = _stream(_Source([_chunk(0, FinishReason.STOP)]).run(), num_choices=2)
    await stream.next_batch()

    with pytest.raises(TargetUnavailableError, match="middle"):
        await stream.next_batch()


async def test_the_deadline_counts_from_receipt():
    """Waiting past the deadline raises; the time before the first batch counts too."""
    source = _Source(hang=True)
    started = asyncio.get_running_loop().time() - 9.95
    stream = ChunkStream(source.run(), num_choices=1, deadline_s=10.0, started_s=started)

    with pytest.raises(DeadlineExceededError, match="10 s"):
        await stream.next_batch()
    assert source.end == "cut"


async def test_errors_of_the_source_pass_through():
    """What the pool raises is what the client gets."""
    stream = _stream(_Source([_chunk()], error=EngineFailedError("boom")).run())
    await stream.next_batch()

    with pytest.raises(EngineFailedError):
        await stream.next_batch()
