"""Distils a draft model from its target, on what the target itself wrote."""

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors.torch import load_file, save_file

from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue, first_tokens
from paceline.training.distillation import hybrid_loss, kl_loss, simulated_tau
from paceline.training.draft_model import DraftModel, load_learnt

_BETAS = (0.9, 0.95)
_MOST_NORM = 0.5  # of the gradient
_CHECKED_DEPTH = 4  # drafts of the chains that tau is simulated for
_MOST_CHECKED = 10_000  # tokens of answers that a check looks at
_LOG = "metrics.jsonl"
_STATE, _LEARNT, _BEST = "state.pt", "last.safetensors", "best.safetensors"

Say = Callable[["Progress"], None]


class Teacher(Protocol):
    """The target, frozen."""

    def hidden(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, hidden]`` after the last norm, for ids ``[batch, tokens]`` padded at the end."""

    def choices(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[n]``: the likeliest token of the whole vocabulary after each of ``hidden`` ([n, hidden])."""

    def rows(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Rows ``[n, hidden]`` of the output head."""


class _Places(NamedTuple):
    """All places of a batch whose next token is one of an answer."""

    drafted: torch.Tensor  # [n, draft vocab] logits of the draft model
    wanted: torch.Tensor  # [n, draft vocab] logits of the target
    choices: torch.Tensor  # [n] places of the target's own choices in the draft vocabulary; -1: it is not in it


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How a draft model is trained. What changes the course of the training is compared when it goes on."""

    epochs: int = 3
    batch_tokens: int = 4096
    learning_rate: float = 5e-4
    warmup: float = 0.03  # share of all steps
    hybrid_from: float = 0.4  # share of all steps after which the hybrid loss replaces KL
    patience: int = 4  # checks without a better tau before training ends
    check_every: int = 100  # steps
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a training is."""

    step: int
    num_steps: int
    token_passes: int
    loss: float
    first: float | None = None  # share of places where both choose the same token, at a check
    tau: float | None = None  # at a check


@dataclass(slots=True)
class _State:
    step: int = 0
    token_passes: int = 0
    seconds: float = 0.0
    best_tau: float = 0.0
    best_first: float = 0.0
    checks_since_best: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a training came to."""

    tau: float
    first: float
    token_passes: int
    seconds: float


class DraftTraining:
    """One training, which can be interrupted at any time and goes on from its folder."""

    def __init__(self, draft: DraftModel, teacher: Teacher, folder: Path, options: TrainingOptions) -> None:
        """Train ``draft`` in place; checkpoints and figures go to ``folder``."""
        self._draft = draft
        self._teacher = teacher
        self._folder = folder
        self._options = options
        self._rows = teacher.rows(draft.draft_token_ids)
        self._place_of = torch.full((draft.model.config.vocab_size,), -1)
        self._place_of[torch.tensor(draft.draft_token_ids)] = torch.arange(len(draft.draft_token_ids))
        self._optimizer = torch.optim.AdamW(draft.learning(), lr=options.learning_rate, betas=_BETAS, weight_decay=0.01)
        self._state = _State()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, dialogues: Sequence[Dialogue], checked: Sequence[Dialogue], say: Say = lambda _: None) -> Outcome:
        """Train on ``dialogues``, keep the best by tau simulated on ``checked``; the draft model ends as the best.

        Greedy answers of ``checked`` count, or all if none is greedy. Raises ConfigError if the folder holds another
        training.
        """
        batches = list(_schedule(dialogues, self._options))
        greedy = [dialogue for dialogue in checked if dialogue.temperature == 0] or list(checked)
        greedy = first_tokens(greedy, _MOST_CHECKED)
        self._resume()
        since = time.monotonic()
        while self._state.step < len(batches) and self._state.checks_since_best < self._options.patience:
            loss = self._step(batches[self._state.step], len(batches))
            state = self._state
            progress = Progress(state.step, len(batches), state.token_passes, loss)
            if state.step % self._options.check_every == 0 or state.step == len(batches):
                state.seconds += time.monotonic() - since
                since = time.monotonic()
                progress = self._check(progress, greedy)
            self._log(progress)
            say(progress)
        best = self._folder / _BEST
        if best.exists():
            load_learnt(self._draft, load_file(best))
        return Outcome(self._state.best_tau, self._state.best_first, self._state.token_passes, self._state.seconds)

    def _step(self, batch: Sequence[Dialogue], num_steps: int) -> float:
        """One step of the optimizer; returns the mean loss of its tokens."""
        share = self._state.step / num_steps
        for group in self._optimizer.param_groups:
            group["lr"] = self._options.learning_rate * _rate(share, self._options.warmup)
        self._draft.train()
        places = self._places(batch)
        losses = (kl_loss if share < self._options.hybrid_from else hybrid_loss)(places.drafted, places.wanted)
        # Where the target's choice cannot be drafted, the law over the rest is no guide.
        can_draft = places.choices >= 0
        loss = (losses * can_draft).sum() / can_draft.sum().clamp(min=1)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._draft.learning(), _MOST_NORM)
        self._optimizer.step()
        self._state.step += 1
        self._state.token_passes += len(losses)
        return float(loss.detach())

    def _places(self, batch: Sequence[Dialogue]) -> _Places:
        token_ids, is_answer = _padded(batch)
        with torch.no_grad():
            hidden = self._teacher.hidden(token_ids)[is_answer]
            wanted = torch.nn.functional.linear(hidden, self._rows)
            choices = self._place_of[self._teacher.choices(hidden)]
        with torch.autocast("cpu", torch.bfloat16):
            drafted = self._draft.draft_logits(self._draft(token_ids)[is_answer])
        return _Places(drafted, wanted, choices)

    def _check(self, progress: Progress, checked: Sequence[Dialogue]) -> Progress:
        """Measure on the dialogues held out, keep the best, and save so that training can go on."""
        self._draft.train(mode=False)
        agrees: list[torch.Tensor] = []
        with torch.no_grad():
            for batch in _batches(checked, self._options.batch_tokens):
                places = self._places(batch)
                equal = places.drafted.argmax(-1) == places.choices
                agrees += torch.split(equal, [len(dialogue.answer_ids) for dialogue in batch])
        state = self._state
        tau = simulated_tau(agrees, depth=_CHECKED_DEPTH)
        first = float(torch.cat(agrees).float().mean()) if agrees else 0.0
        state.checks_since_best += 1
        if tau > state.best_tau:
            state.best_tau, state.best_first, state.checks_since_best = tau, first, 0
            save_file(_contiguous(self._draft.learnt()), self._folder / _BEST)
        self._save()
        return Progress(progress.step, progress.num_steps, progress.token_passes, progress.loss, first, tau)

    def _save(self) -> None:
        """Weights, optimizer and counts; the new file is whole before it takes the old one's place."""
        save_file(_contiguous(self._draft.learnt()), self._folder / _LEARNT)
        body = {
            "options": asdict(self._options),
            "state": asdict(self._state),
            "optimizer": self._optimizer.state_dict(),
        }
        written = self._folder / f"{_STATE}.new"
        torch.save(body, written)
        written.replace(self._folder / _STATE)

    def _resume(self) -> None:
        path = self._folder / _STATE
        if not path.exists():
            (self._folder / _LOG).unlink(missing_ok=True)
            return
        body: dict[str, Any] = torch.load(path, weights_only=True)
        if body["options"] != asdict(self._options):
            raise ConfigError(f"{self._folder} holds a training with other options; begin in another folder.")
        load_learnt(self._draft, load_file(self._folder / _LEARNT))
        self._optimizer.load_state_dict(body["optimizer"])
        self._state = _State(**body["state"])
        # Steps after the last check are taken again.
        lines = (self._folder / _LOG).read_text("utf-8").splitlines(keepends=True)[: self._state.step]
        (self._folder / _LOG).write_text("".join(lines), "utf-8")

    def _log(self, progress: Progress) -> None:
        with (self._folder / _LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress)) + "\n")


def _rate(share: float, warmup: float) -> float:
    """Linear warm-up, then a half cosine down to a tenth."""
    if share < warmup:
        return (share + 1e-3) / (warmup + 1e-3)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (share - warmup) / (1 - warmup)))


def _schedule(dialogues: Sequence[Dialogue], options: TrainingOptions) -> Iterator[list[Dialogue]]:
    """The batches of all epochs, the same for the same seed."""
    draw = random.Random(options.seed)
    for _ in range(options.epochs):
        order = list(dialogues)
        draw.shuffle(order)
        # Neighbours of like length waste little on padding; the order of the batches stays random.
        chunk = 64
        sorted_chunks = (sorted(order[at : at + chunk], key=len) for at in range(0, len(order), chunk))
        batches = [batch for part in sorted_chunks for batch in _batches(part, options.batch_tokens)]
        draw.shuffle(batches)
        yield from batches


def _batches(dialogues: Sequence[Dialogue], most_tokens: int) -> Iterator[list[Dialogue]]:
    """Dialogues in order, as many together as fit into ``most_tokens`` with their padding; at least one."""
    batch: list[Dialogue] = []
    longest = 0
    for dialogue in dialogues:
        longest = max(longest, len(dialogue))
        if batch and longest * (len(batch) + 1) > most_tokens:
            yield batch
            batch, longest = [], len(dialogue)
        batch.append(dialogue)
    if batch:
        yield batch


def _padded(batch: Sequence[Dialogue]) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, whether the next token is one of an answer), both ``[batch, tokens]``."""
    width = max(map(len, batch))
    token_ids = torch.zeros(len(batch), width, dtype=torch.int64)
    is_answer = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, dialogue in enumerate(batch):
        token_ids[row, : len(dialogue)] = torch.tensor((*dialogue.prompt_ids, *dialogue.answer_ids))
        is_answer[row, len(dialogue.prompt_ids) - 1 : len(dialogue) - 1] = True
    return token_ids, is_answer


def _contiguous(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
