"""The loop: best weights, early stop, interruptions that change nothing."""

import json

import pytest
import torch

from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue
from paceline.training.loop import LoopOptions, TrainingLoop

DIALOGUES = [Dialogue((1,), (2 + index % 7,) * 4, 0.0, str(index)) for index in range(32)]
OPTIONS = LoopOptions(epochs=3, batch_tokens=20, learning_rate=0.05, check_every=4, patience=100)


class Constant(torch.nn.Module):
    """Learns the mean of the answers' tokens; agreement is what it is told to report."""

    def __init__(self, agreements=()):
        super().__init__()
        self.mean = torch.nn.Parameter(torch.zeros(1))
        self.agreements = list(agreements)
        self.hybrids = []

    def forward(self, dialogues, *, hybrid):
        self.hybrids.append(hybrid)
        values = torch.tensor([float(token) for one in dialogues for token in one.answer_ids])
        return ((self.mean - values) ** 2).mean(), len(values)

    def agreement(self, dialogues, depth):
        share = self.agreements.pop(0) if self.agreements else 0.0
        return (torch.arange(100) < 100 * share)[:, None].expand(-1, depth)

    def learnt(self):
        return dict(self.named_parameters())


def run(folder, pupil, options=OPTIONS, say=lambda _: None, **course):
    return TrainingLoop(pupil, folder, options, course=course).run(DIALOGUES, DIALOGUES[:4], say)


def log(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_loss_falls_and_the_schedule_is_kept(tmp_path):
    """Warm-up, then down; KL first, then the hybrid loss; every token of an answer counts once an epoch."""
    pupil = Constant()
    outcome = run(tmp_path, pupil)
    lines = log(tmp_path)
    rates = [line["rate"] for line in lines]

    assert sum(line["loss"] for line in lines[-5:]) < 0.7 * sum(line["loss"] for line in lines[:5])
    assert outcome.token_passes == 3 * sum(len(one.answer_ids) for one in DIALOGUES)
    assert rates.index(max(rates)) in (1, 2)
    assert rates[-1] == pytest.approx(0.1 * OPTIONS.learning_rate, rel=0.1)
    assert pupil.hybrids == sorted(pupil.hybrids)
    assert pupil.hybrids.index(True) == pytest.approx(0.4 * len(lines), abs=1)


def test_the_best_weights_are_kept_and_training_ends_when_they_stay_the_best(tmp_path):
    """By simulated tau: after ``patience`` worse checks it is over, and the pupil is as it was at the best."""
    pupil, seen = Constant([0.1, 0.5, 0.3, 0.4, 0.2]), {}
    options = LoopOptions(epochs=50, batch_tokens=20, learning_rate=0.05, check_every=2, patience=3)
    outcome = run(tmp_path, pupil, options, lambda progress: seen.update({progress.step: pupil.mean.item()}))

    assert max(seen) == 2 * 5
    assert outcome.figures.tau == pytest.approx(1 + 4 * 0.5)
    assert outcome.figures.accepted == (0.5, 1, 1, 1)
    assert pupil.mean.item() == seen[4]


def test_a_training_that_was_killed_goes_on_with_the_same_losses(tmp_path):
    """Killed between two checks: steps after the last are taken again, and the curve is that of one whole run."""

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.step == 10:
            raise KilledError

    whole = run(tmp_path / "whole", Constant())
    with pytest.raises(KilledError):
        run(tmp_path / "killed", Constant(), say=kill)
    assert len(log(tmp_path / "killed")) == 10
    again = run(tmp_path / "killed", Constant())

    assert log(tmp_path / "killed") == log(tmp_path / "whole")
    assert again.token_passes == whole.token_passes


def test_another_training_does_not_go_on_in_the_same_folder(tmp_path):
    """Other options of the loop, or another course: it is said, nothing is overwritten."""
    run(tmp_path, Constant(), data="a")
    before = log(tmp_path)
    for options, data in ((OPTIONS, "b"), (LoopOptions(epochs=1), "a")):
        with pytest.raises(ConfigError, match="other options or data"):
            run(tmp_path, Constant(), options, data=data)
    assert log(tmp_path) == before
