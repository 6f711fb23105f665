"""The loop that all pupils are trained by: schedule, checks, early stop, checkpoints."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from paceline.errors import ConfigError
from paceline.training.batches import batches, schedule
from paceline.training.chain_figures import ChainFigures, chain_figures
from paceline.training.corpus import Dialogue, first_tokens
from paceline.training.optimizers import optimizers

CHECKED_DEPTH = 4  # drafts of the chains that tau is simulated for
LOG = "metrics.jsonl"
_STATE, _LEARNT, _BEST = "state.pt", "last.safetensors", "best.safetensors"

Say = Callable[["Progress"], None]


class Pupil(Protocol):
    """A module that learns."""

    def __call__(self, dialogues: Sequence[Dialogue], *, hybrid: bool) -> tuple[torch.Tensor, int]:
        """(mean loss of a batch, by KL alone or the hybrid loss; tokens that it was taken on)."""

    def agreement(self, dialogues: Sequence[Dialogue], depth: int) -> torch.Tensor:
        """``[places, depth]``; see `chain_figures`. Fewer depths where the pupil has no more."""

    def learnt(self) -> dict[str, torch.Tensor]:
        """The tensors that are trained, by name; what is put into them is used."""


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How training goes. All of it is compared when a training goes on."""

    epochs: int = 3
    batch_tokens: int = 4096
    learning_rate: float = 2e-3
    warmup: float = 0.03  # share of all steps
    hybrid_from: float = 0.4  # share of all steps after which the hybrid loss replaces KL
    most_norm: float = 0.5  # of the gradient
    weight_decay: float = 0.01
    patience: int = 6  # checks without a better tau before training ends
    check_every: int = 100  # steps
    checked_tokens: int = 8000  # tokens of answers that a check looks at
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a training is."""

    step: int
    num_steps: int
    token_passes: int
    loss: float
    rate: float  # of learning
    figures: ChainFigures | None = None  # at a check


@dataclass(slots=True)
class _State:
    step: int = 0
    token_passes: int = 0
    seconds: float = 0.0
    checks_since_best: int = 0
    best: dict[str, Any] = field(default_factory=lambda: asdict(ChainFigures(0.0, (), 0)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a training came to."""

    figures: ChainFigures  # of the weights that are kept
    token_passes: int
    seconds: float


class TrainingLoop:
    """One training, which can be interrupted at any time and goes on from its folder."""

    def __init__(self, pupil: Pupil, folder: Path, options: LoopOptions, *, course: dict[str, Any]) -> None:
        """Train ``pupil`` in place; checkpoints and figures go to ``folder``.

        ``course`` is what else makes a training another one; it must be JSON.
        """
        self._accelerator = accelerator()
        self._pupil = pupil
        self._learnt = pupil.learnt()
        made = optimizers(self._learnt, learning_rate=options.learning_rate, weight_decay=options.weight_decay)
        self._module, *self._optimizers = self._accelerator.prepare(pupil, *made)
        self._folder = folder
        self._options = options
        self._course = {**asdict(options), **course}
        self._state = _State()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, dialogues: Sequence[Dialogue], checked: Sequence[Dialogue], say: Say = lambda _: None) -> Outcome:
        """Train on ``dialogues``, keep the best by tau simulated on ``checked``; the pupil ends as the best.

        Greedy answers of ``checked`` count, or all if none is greedy. Raises ConfigError if the folder holds another
        training.
        """
        options, state = self._options, self._state
        plan = list(schedule(dialogues, epochs=options.epochs, batch_tokens=options.batch_tokens, seed=options.seed))
        workers = self._accelerator.num_processes
        num_steps = len(plan) // workers
        greedy = [dialogue for dialogue in checked if dialogue.temperature == 0] or list(checked)
        greedy = first_tokens(greedy, options.checked_tokens)
        self._resume()
        state = self._state
        since = time.monotonic()
        while state.step < num_steps and state.checks_since_best < options.patience:
            batch = plan[state.step * workers + self._accelerator.process_index]
            progress = self._step(batch, num_steps)
            if state.step % options.check_every == 0 or state.step == num_steps:
                state.seconds += time.monotonic() - since
                since = time.monotonic()
                progress = replace(progress, figures=self._check(greedy))
            if self._accelerator.is_main_process:
                self._log(progress)
                say(progress)
        self._accelerator.wait_for_everyone()
        if (self._folder / _BEST).exists():
            self._put_back(_BEST)
        best = ChainFigures(**state.best | {"accepted": tuple(state.best["accepted"])})
        return Outcome(best, state.token_passes, state.seconds)

    def _step(self, batch: Sequence[Dialogue], num_steps: int) -> Progress:
        """One step of the optimizer."""
        options, state = self._options, self._state
        share = state.step / num_steps
        rate = options.learning_rate * _rate(share, options.warmup)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
        loss, tokens = self._module(batch, hybrid=share >= options.hybrid_from)
        self._accelerator.backward(loss)
        self._accelerator.clip_grad_norm_(self._learnt.values(), options.most_norm)
        for optimizer in self._optimizers:
            optimizer.step()
        state.step += 1
        count = torch.tensor(tokens, device=self._accelerator.device)
        state.token_passes += int(self._accelerator.reduce(count))
        return Progress(state.step, num_steps, state.token_passes, float(loss.detach()), rate)

    def _check(self, checked: Sequence[Dialogue]) -> ChainFigures:
        """Measure on the dialogues held out, keep the best, and save so that training can go on."""
        parts = [self._pupil.agreement(batch, CHECKED_DEPTH) for batch in batches(checked, self._options.batch_tokens)]
        figures = chain_figures(torch.cat(parts))
        state = self._state
        state.checks_since_best += 1
        better = figures.tau > state.best["tau"]
        if better:
            state.best, state.checks_since_best = asdict(figures), 0
        if self._accelerator.is_main_process:
            if better:
                self._save_learnt(_BEST)
            self._save()
        return figures

    def _save(self) -> None:
        """Weights, optimizer and counts; the file that counts is whole before it takes the old one's place."""
        self._save_learnt(_LEARNT)
        body = {
            "course": json.dumps(self._course, sort_keys=True),
            "state": asdict(self._state),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        written = self._folder / f"{_STATE}.new"
        torch.save(body, written)
        written.replace(self._folder / _STATE)

    def _resume(self) -> None:
        path = self._folder / _STATE
        first = self._accelerator.is_main_process
        if not path.exists():
            if first:
                (self._folder / LOG).unlink(missing_ok=True)
            return
        body: dict[str, Any] = torch.load(path, weights_only=True)
        if body["course"] != json.dumps(self._course, sort_keys=True):
            raise ConfigError(
                f"{self._folder} holds a training with other options or data; begin in another folder, or remove it."
            )
        self._put_back(_LEARNT)
        for optimizer, kept in zip(self._optimizers, body["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self._state = _State(**body["state"])
        if not first:
            return
        # Steps after the last check are taken again.
        lines = (self._folder / LOG).read_text("utf-8").splitlines(keepends=True)[: self._state.step]
        (self._folder / LOG).write_text("".join(lines), "utf-8")

    def _save_learnt(self, name: str) -> None:
        kept = {key: tensor.detach().cpu().contiguous() for key, tensor in self._learnt.items()}
        save_file(kept, self._folder / f"{name}.new")
        (self._folder / f"{name}.new").replace(self._folder / name)

    def _put_back(self, name: str) -> None:
        with torch.no_grad():
            for key, tensor in load_file(self._folder / name).items():
                self._learnt[key].copy_(tensor)

    def _log(self, progress: Progress) -> None:
        with (self._folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress)) + "\n")


def accelerator() -> Accelerator:
    """What knows this process among those that train together, as torchrun or Ray started them, or alone.

    Accelerate looks for several processes on CPU only where it is told to use it.
    """
    return Accelerator(cpu=not torch.cuda.is_available())


def _rate(share: float, warmup: float) -> float:
    """Linear warm-up, then a half cosine down to a tenth."""
    if share < warmup:
        return (share + 1e-3) / (warmup + 1e-3)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (share - warmup) / (1 - warmup)))
