"""The order of training: everything once an epoch, the same for the same seed, little padding."""

from collections import Counter

from paceline.training.batches import batches, schedule
from paceline.training.corpus import Dialogue

DIALOGUES = [Dialogue((1,), tuple(range(1, 2 + index % 37)), 0.0, str(index)) for index in range(300)]


def test_every_epoch_has_every_dialogue_once():
    """Shuffled anew each time, and again the same from the same seed."""
    plan = list(schedule(DIALOGUES, epochs=2, batch_tokens=200, seed=1))
    seen = [dialogue for batch in plan for dialogue in batch]

    assert Counter(seen) == Counter(DIALOGUES * 2)
    assert seen[:300] != seen[300:]
    assert plan == list(schedule(DIALOGUES, epochs=2, batch_tokens=200, seed=1))
    assert plan != list(schedule(DIALOGUES, epochs=2, batch_tokens=200, seed=2))


def test_a_batch_holds_no_more_than_asked_for_with_its_padding():
    """Unless a single dialogue is longer; and of what is computed, most is no padding."""
    plan = list(schedule(DIALOGUES, epochs=1, batch_tokens=200, seed=1))
    padded = [len(batch) * max(map(len, batch)) for batch in plan]

    assert max(padded) <= 200
    assert sum(map(len, DIALOGUES)) > 0.75 * sum(padded)
    assert list(batches(DIALOGUES[30:32], 5)) == [[DIALOGUES[30]], [DIALOGUES[31]]]
