"""Features on disk: what is read is what the target computed, whatever happened while it was written."""

import pytest
import torch

from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue
from paceline.training.feature_cache import FeatureCache
from synthetic_target import SyntheticTarget

TARGET = SyntheticTarget()
DIALOGUES = [dialogue for length in (5, 9, 7) for dialogue in TARGET.dialogues(4, length, seed=length)]


class Counting(SyntheticTarget):
    """Counts the tokens that are asked for."""

    asked = 0

    def hidden(self, token_ids):
        self.asked += token_ids.numel()
        return super().hidden(token_ids)


def right(cache, dialogues):
    """Whether a batch holds what the target says."""
    batch = cache.batch(dialogues)
    for row, dialogue in enumerate(dialogues):
        ids = torch.tensor([[*dialogue.prompt_ids, *dialogue.answer_ids]])
        hidden = TARGET.hidden(ids)[0]
        length = len(dialogue)
        assert batch.token_ids[row, :length].tolist() == ids[0].tolist()
        assert torch.equal(batch.hidden[row, :length], hidden.to(torch.bfloat16).float())
        assert torch.equal(batch.choices[row, :length], TARGET.choices(hidden))
        assert not batch.hidden[row, length:].any()
    return True


def test_features_are_those_of_the_target(tmp_path):
    """Of every token of every dialogue, across batches of different lengths, padding left out."""
    cache = FeatureCache(tmp_path, TARGET)
    cache.fill(DIALOGUES, batch_tokens=20)

    assert right(cache, DIALOGUES)
    assert (tmp_path / "features.bin").stat().st_size == sum(map(len, set(DIALOGUES))) * TARGET.hidden_size * 2


def test_answers_are_marked_by_the_place_before_each_of_their_tokens(tmp_path):
    """The place that predicts the first token of the answer is the last of the prompt."""
    dialogue = Dialogue((30, 1, 2), (3, 4), 0.0, "a")
    cache = FeatureCache(tmp_path, TARGET)
    cache.fill([dialogue])

    assert cache.batch([dialogue]).is_answer.tolist() == [[False, False, True, True, False]]


def test_only_what_is_missing_is_computed(tmp_path):
    """More data later, or the same data for another training."""
    FeatureCache(tmp_path, TARGET).fill(DIALOGUES[:6])
    source = Counting()
    cache = FeatureCache(tmp_path, source)
    cache.fill(DIALOGUES[:6])
    assert source.asked == 0

    cache.fill(DIALOGUES)
    assert 0 < source.asked <= 2 * sum(map(len, DIALOGUES[6:]))
    assert right(cache, DIALOGUES)


def test_what_was_being_written_when_a_process_ended_is_made_again(tmp_path):
    """Features without a line in the index, and a line without its end."""
    FeatureCache(tmp_path, TARGET).fill(DIALOGUES[:6])
    with (tmp_path / "features.bin").open("ab") as file:
        file.write(b"12345")
    with (tmp_path / "index.jsonl").open("a") as file:
        file.write('["torn", 4')
    cache = FeatureCache(tmp_path, TARGET)
    cache.fill(DIALOGUES)

    assert right(cache, DIALOGUES)


def test_features_of_another_target_are_refused(tmp_path):
    """And a file that is shorter than the index says."""
    FeatureCache(tmp_path, TARGET).fill(DIALOGUES[:6])
    other = SyntheticTarget()
    other.version = "other"
    with pytest.raises(ConfigError, match="another target"):
        FeatureCache(tmp_path, other)

    (tmp_path / "features.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match="shorter than its index"):
        FeatureCache(tmp_path, TARGET).fill(DIALOGUES)
