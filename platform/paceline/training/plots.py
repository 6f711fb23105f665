"""Draws the course of a training: loss by step, acceptance by depth at each check."""

import json
from pathlib import Path
from typing import Any

from paceline.training.loop import LOG

FILE = "training.svg"


def plot_training(work: Path) -> Path | None:
    """Draw what the loop logged in ``work``; returns the file, or None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  # optional
    except ImportError:
        return None
    lines: list[dict[str, Any]] = [json.loads(line) for line in (work / LOG).read_text("utf-8").splitlines()]
    checks = [line for line in lines if line["figures"]]
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([line["token_passes"] for line in lines], [line["loss"] for line in lines], linewidth=0.6)
    left.set(xlabel="token passes", ylabel="loss", title="Loss")
    passes = [line["token_passes"] for line in checks]
    depths = len(checks[0]["figures"]["accepted"]) if checks else 0
    for depth in range(depths):
        shares = [line["figures"]["accepted"][depth] for line in checks]
        right.plot(passes, shares, marker=".", label=f"draft {depth + 1}")
    right.set(xlabel="token passes", ylabel="accepted", title="Acceptance on dialogues held out", ylim=(0, 1))
    if depths:
        right.legend()
    path = work / FILE
    figure.savefig(path)
    return path
