import dataclasses
import random

import pytest

from paceline.core.generation import ChoiceStart, FinishReason
from paceline.errors import EngineFailedError, StreamGapError, TargetUnavailableError
from paceline.rpc.chunk_continuity import ChunkContinuity
from peers import chunk_of

TOTAL = 12


def test_repeats_are_dropped_wherever_they_begin():
    """Any sequence of overlapping pieces that covers the answer gives each token and character once."""
    rng = random.Random(1)
    for _ in range(200):
        continuity, tokens, text, done = ChunkContinuity(1), [], "", 0
        while done < TOTAL:
            start = rng.randint(0, done)
            stop = rng.randint(max(done, start + 1), TOTAL)
            for chunk in continuity.admit([chunk_of("r/1", 0, start, stop, TOTAL)]):
                assert chunk.first_index == len(tokens)
                assert chunk.text_offset == len(text)
                tokens += chunk.token_ids
                text += chunk.text
            done = stop
        continuity.check_complete()
        assert tokens == list(range(TOTAL))
        assert len(text) == TOTAL


def test_gap_is_an_error():
    """A missing token is never papered over."""
    continuity = ChunkContinuity(1)
    continuity.admit([chunk_of("r/1", 0, 0, 2, TOTAL)])
    with pytest.raises(StreamGapError, match="at token 3, expected 2"):
        continuity.admit([dataclasses.replace(chunk_of("r/1", 0, 3, 4, TOTAL), text_offset=2)])


def test_missing_text_is_an_error():
    """Tokens in order with characters missing are a gap too."""
    continuity = ChunkContinuity(1)
    with pytest.raises(StreamGapError):
        continuity.admit([dataclasses.replace(chunk_of("r/1", 0, 0, 1, TOTAL), text_offset=4)])


def test_finish_that_overtakes_the_last_tokens_is_an_error():
    """The count in the finish message shows that tokens are missing before it."""
    continuity = ChunkContinuity(1)
    chunk = chunk_of("r/1", 0, 0, TOTAL, TOTAL)
    short = dataclasses.replace(chunk, token_ids=chunk.token_ids[:-1], text=chunk.text[:-1])
    with pytest.raises(StreamGapError):
        continuity.admit([short])


def test_aborted_choice_may_end_early():
    """An abort names no token count that must match."""
    continuity = ChunkContinuity(1)
    chunk = dataclasses.replace(chunk_of("r/1", 0, 0, 2, 2), finish=FinishReason.ABORT)
    assert continuity.admit([chunk]) == [chunk]
    continuity.check_complete()


def test_end_before_every_choice_has_finished_is_an_error():
    """A stream that ends like a normal one after half an answer is not taken for the whole."""
    continuity = ChunkContinuity(2)
    continuity.admit([chunk_of("r/1", 0, 0, TOTAL, TOTAL), chunk_of("r/1", 1, 0, 3, TOTAL)])
    with pytest.raises(TargetUnavailableError):
        continuity.check_complete()


def test_choice_that_was_not_asked_for_is_an_error():
    """A stray choice index fails the stream instead of the reader."""
    with pytest.raises(EngineFailedError):
        ChunkContinuity(1).admit([chunk_of("r/1", 1, 0, 1, TOTAL)])


def test_a_resumed_stream_goes_on_behind_what_has_arrived():
    """Of a resumed choice only new tokens pass, a gap is an error, and choices that had ended stay ended."""
    start = ChoiceStart(1, tuple(range(5)), text_offset=4)
    continuity = ChunkContinuity(2, [start])
    (chunk,) = continuity.admit([chunk_of("r/2", 1, 3, TOTAL, TOTAL), chunk_of("r/2", 0, 0, 2, TOTAL)])

    assert (chunk.choice, chunk.first_index, chunk.token_ids[0], chunk.text_offset) == (1, 5, 5, 4)
    continuity.check_complete()
    with pytest.raises(StreamGapError):
        ChunkContinuity(2, [start]).admit([chunk_of("r/2", 1, 6, TOTAL, TOTAL)])
