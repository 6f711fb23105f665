"""From logits to the target distribution: the one definition that every path calls.

Order: logit bias, penalties, masks (bad words, min_tokens), temperature, min-p, top-k, top-p on the
renormalised rest, all over the prefix of the position in question: prompt, committed tokens, and the
drafts before it. Plain decoding, verification and drafters share this function; a second one would
drift from it.
"""

import math
from collections.abc import Iterable, Sequence, Set
from typing import Protocol

import torch

from paceline.core.sampling_params import SamplingParams
from paceline.errors import EngineFailedError
from paceline.kernels import token_law
from paceline.kernels.token_law import ALL_MASKED, NOT_FINITE, Warp, WarpedRow
from paceline.verification import device_rows
from paceline.verification.law import TokenLaw
from paceline.verification.truncation import warped_row

_LEAST_TEMPERATURE = 1e-30  # above 0 in float32; anything near it is greedy in all but name


class Prefix(Protocol):
    """What a law depends on besides the logits, in their own numbering of ids; `SamplerState` has it."""

    @property
    def params(self) -> SamplingParams:
        """How the request wants its tokens drawn."""

    @property
    def position(self) -> int:
        """Absolute position of the token."""

    def output_counts(self) -> dict[int, int]:
        """How often each id is in the output."""

    def seen_token_ids(self) -> frozenset[int]:
        """Ids in prompt or output."""

    def banned_token_ids(self) -> Set[int]:
        """Ids that must not come next."""


def target_law(logits: torch.Tensor, state: Prefix) -> TokenLaw:
    """The distribution of the token at ``state.position``; see `target_laws`."""
    return target_laws([logits], [state])[0]


def target_laws(logits: Sequence[torch.Tensor], states: Sequence[Prefix]) -> list[TokenLaw]:
    """The distributions of the tokens at the positions of ``states``.

    Each of ``logits`` [vocab] is floating point and is not changed; a law may share its memory. Raises
    EngineFailedError where no distribution exists: NaN or +inf logits, or every id masked. On an accelerator that
    is found, and raised, only when the law is drawn from.
    """
    scores = [_edited(row, state) for row, state in zip(logits, states, strict=True)]
    warps = [_warp(state.params) for state in states]
    rows = _warped(scores, warps)
    return [_law(row, state) for row, state in zip(rows, states, strict=True)]


def _warp(params: SamplingParams) -> Warp:
    return Warp(
        temperature=0.0 if params.greedy else max(params.temperature, _LEAST_TEMPERATURE),
        log_min_p=math.log(params.min_p) if params.min_p > 0.0 else -math.inf,
        top_k=params.top_k,
        top_p=params.top_p,
    )


def _warped(scores: Sequence[torch.Tensor], warps: Sequence[Warp]) -> list[WarpedRow]:
    """All rows together where they are alike: in one call of the kernel, or without waiting for a device."""
    alike = len({(row.numel(), row.dtype, row.device) for row in scores}) == 1
    if alike and scores[0].device.type != "cpu":
        return device_rows.warped_rows(scores, warps)
    if alike and all(token_law.serves(row) for row in scores):
        return token_law.warp_rows(scores, warps)
    return [warped_row(row, warp) for row, warp in zip(scores, warps, strict=True)]


def _law(row: WarpedRow, state: Prefix) -> TokenLaw:
    if row.best_id == NOT_FINITE:
        raise EngineFailedError(f"the logits at position {state.position} are not finite")
    if row.best_id == ALL_MASKED:
        raise EngineFailedError(f"every token is masked at position {state.position}")
    if state.params.greedy and row.log_weights.device.type == "cpu":
        return TokenLaw.point(row.best_id)
    return TokenLaw(row.log_weights, row.token_ids)


def _edited(logits: torch.Tensor, state: Prefix) -> torch.Tensor:
    """Logit bias, then penalties, then masks, on one copy; ``logits`` itself where nothing applies."""
    params, banned = state.params, state.banned_token_ids()
    repeats = params.repetition_penalty != 1.0
    counts = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
    if not (params.logit_bias or repeats or counts or banned):
        return logits
    scores = logits.clone()
    if params.logit_bias:
        _add(scores, dict(params.logit_bias))
    if repeats:
        _penalise_repetition(scores, state.seen_token_ids(), params.repetition_penalty)
    if counts:
        _add(
            scores,
            {
                token_id: -params.presence_penalty - params.frequency_penalty * count
                for token_id, count in state.output_counts().items()
            },
        )
    if banned:
        scores.index_fill_(0, _ids_inside(banned, scores), -math.inf)
    return scores


def _add(scores: torch.Tensor, amounts: dict[int, float]) -> None:
    ids = _ids_inside(amounts, scores)
    values = torch.tensor([amounts[i] for i in ids.tolist()], dtype=scores.dtype, device=scores.device)
    scores.index_add_(0, ids, values)


def _penalise_repetition(scores: torch.Tensor, seen: Iterable[int], penalty: float) -> None:
    """CTRL's penalty (Keskar et al. 2019): positive scores are divided, negative ones multiplied."""
    ids = _ids_inside(seen, scores)
    chosen = scores[ids]
    scores.index_copy_(0, ids, torch.where(chosen > 0, chosen / penalty, chosen * penalty))


def _ids_inside(token_ids: Iterable[int], scores: torch.Tensor) -> torch.Tensor:
    """The ids that the head has a row for; no other can be drawn, so edits of those change nothing."""
    vocab_size = scores.numel()
    inside = sorted({i for i in token_ids if 0 <= i < vocab_size})
    return torch.tensor(inside, dtype=torch.int64, device=scores.device)
