"""The picture of a training."""

import json
import sys

from paceline.training.plots import plot_training

FIGURES = {"tau": 1.5, "accepted": [0.4, 0.3], "places": 9}
LINES = [{"step": step, "token_passes": 10 * step, "loss": 3.0 / step, "figures": None} for step in range(1, 5)]


def write(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_loss_and_acceptance_are_drawn(tmp_path):
    """By token passes; also before the first check."""
    write(tmp_path, [*LINES, LINES[-1] | {"figures": FIGURES}])
    picture = plot_training(tmp_path).read_text()
    assert "<svg" in picture

    write(tmp_path, LINES)
    assert plot_training(tmp_path).exists()


def test_without_matplotlib_nothing_is_drawn(tmp_path, monkeypatch):
    """It is an extra."""
    write(tmp_path, LINES)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    assert plot_training(tmp_path) is None
