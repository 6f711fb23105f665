"""Brings the K/V of draft heads up to date with the target's own features, many sessions to a pass."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from paceline.drafting.head_session import HeadSession, Stretch
from paceline.modeling.head_runner import HeadRow, HeadRunner
from paceline.modeling.heads.head_spec import HeadSpec


class ContextResult(NamedTuple):
    """What the modules of a head said at the last token of a stretch, the first module's first."""

    logits: list[torch.Tensor]  # [draft vocab] each; one, or one a module where they are parallel
    hidden: list[torch.Tensor]  # [hidden] each


class _Part(NamedTuple):
    session: HeadSession
    stretch: Stretch  # to compute
    features: torch.Tensor  # of its tokens
    first: int  # of the module's context


def num_modules(spec: HeadSpec, session: HeadSession) -> int:
    """Modules that have something to read: each sequential one begins a token later than the one before."""
    if spec.variant == "parallel":
        return spec.num_modules
    return min(spec.num_modules, len(session.tokens) - session.first)


def compute_context(
    runner: HeadRunner, stretches: Sequence[tuple[HeadSession, Stretch]], *, wanted: bool
) -> list[ContextResult]:
    """Run all modules over each stretch, with logits at its last token if ``wanted``; marks it as computed.

    Module k of a sequential head reads what module k - 1 made of the token before. Where that was not kept, it is
    made again: module k - 1 begins a token earlier.
    """
    parallel = runner.spec.variant == "parallel"
    results = [ContextResult([], []) for _ in stretches]
    parts = {place: _first_part(runner.spec, *item) for place, item in enumerate(stretches)}
    for module in range(1, runner.spec.num_modules + 1):
        num_logits = 1 if wanted and (parallel or module == 1) else 0
        rows = [
            part.session.context_row(part.stretch, part.features, first=part.first, num_logits=num_logits)
            for part in parts.values()
        ]
        if not rows:
            break
        output, start = runner.forward(rows, module), 0
        for row, (place, part) in enumerate(list(parts.items())):
            stop = start + len(rows[row].row.token_ids)
            hidden, start = output.hidden[start:stop], stop
            results[place].hidden.append(hidden[-1])
            if num_logits:
                results[place].logits.append(output.logits[row])
            if not parallel:
                _advance(parts, place, part, hidden, module < num_modules(runner.spec, part.session))
    for session, stretch in stretches:
        session.mark_computed(stretch)
    return results


def drafted_rows(runner: HeadRunner, rows: Sequence[tuple[int, HeadRow]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logits and hidden states of each of ``rows``, given with the module that computes it; one pass a module."""
    results: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for module in sorted({module for module, _ in rows}):
        places = [place for place, (wanted, _) in enumerate(rows) if wanted == module]
        output = runner.forward([rows[place][1] for place in places], module)
        tokens = torch.split(output.hidden, [len(rows[place][1].row.token_ids) for place in places])
        logits = torch.split(output.logits, [rows[place][1].row.num_logits for place in places])
        results.update(zip(places, zip(logits, tokens, strict=True), strict=True))
    return [results[place] for place in range(len(rows))]


def _first_part(spec: HeadSpec, session: HeadSession, stretch: Stretch) -> _Part:
    if spec.variant != "parallel":
        earlier = num_modules(spec, session) - 1
        stretch = Stretch(max(stretch.start - earlier, session.first), stretch.stop)
    return _Part(session, stretch, session.target_features(stretch), session.first)


def _advance(parts: dict[int, _Part], place: int, part: _Part, hidden: torch.Tensor, more: bool) -> None:
    """What the next module computes of a stretch: a token less, from the hidden state of the token before."""
    stretch = Stretch(part.stretch.start + 1, part.stretch.stop)
    if more and stretch.start < stretch.stop:
        parts[place] = _Part(part.session, stretch, hidden[:-1], part.first + 1)
    else:
        del parts[place]
