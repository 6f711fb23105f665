"""From logits to the target distribution: the one definition that every path calls.

Order: logit bias, penalties, masks (bad words, min_tokens), temperature, min-p, top-k, top-p on the
renormalised rest, all over the prefix of the position in question: prompt, committed tokens, and the
drafts before it. Plain decoding, verification and drafters share this function; a second one would
drift from it.
"""

import math
from collections.abc import Iterable

import torch

from paceline.errors import EngineFailedError
from paceline.verification.law import TokenLaw
from paceline.verification.sampler_state import SamplerState
from paceline.verification.truncation import truncated_law


def target_law(logits: torch.Tensor, state: SamplerState) -> TokenLaw:
    """The distribution of the token at ``state.position``.

    ``logits`` [vocab] is floating point and is not changed; the law may share its memory. Raises
    EngineFailedError where no distribution exists: NaN or +inf logits, or every id masked.
    """
    params = state.params
    scores = _masked(_biased(logits, state), state)
    best, best_id = torch.max(scores, dim=0)  # NaN wins every comparison in torch.max
    _check(float(best), state)
    if params.greedy:
        return TokenLaw.point(int(best_id))
    if params.temperature != 1.0:
        # From the maximum down: a tiny temperature then sends the others to -inf and never overflows.
        scores = (scores - best) / params.temperature
    if params.min_p > 0.0 or params.top_k > 0 or params.top_p < 1.0:
        return truncated_law(scores, min_p=params.min_p, top_k=params.top_k, top_p=params.top_p)
    return TokenLaw(scores)


def _check(best: float, state: SamplerState) -> None:
    if math.isnan(best) or best == math.inf:
        raise EngineFailedError(f"the logits at position {state.position} are not finite")
    if best == -math.inf:
        raise EngineFailedError(f"every token is masked at position {state.position}")


def _biased(logits: torch.Tensor, state: SamplerState) -> torch.Tensor:
    """Logit bias, then penalties. Returns ``logits`` itself where nothing applies."""
    params = state.params
    scores = logits
    if params.logit_bias:
        scores = _added(scores, dict(params.logit_bias))
    if params.repetition_penalty != 1.0:
        scores = _repetition_penalised(scores, state.seen_token_ids(), params.repetition_penalty)
    if params.presence_penalty != 0.0 or params.frequency_penalty != 0.0:
        counts = state.output_counts()
        scores = _added(
            scores,
            {i: -params.presence_penalty - params.frequency_penalty * count for i, count in counts.items()},
        )
    return scores


def _masked(scores: torch.Tensor, state: SamplerState) -> torch.Tensor:
    banned = state.banned_token_ids()
    return scores.index_fill(0, _ids_inside(banned, scores), -math.inf) if banned else scores


def _added(scores: torch.Tensor, amounts: dict[int, float]) -> torch.Tensor:
    ids = _ids_inside(amounts, scores)
    values = torch.tensor([amounts[i] for i in ids.tolist()], dtype=scores.dtype, device=scores.device)
    return scores.index_add(0, ids, values)


def _repetition_penalised(scores: torch.Tensor, seen: Iterable[int], penalty: float) -> torch.Tensor:
    """CTRL's penalty (Keskar et al. 2019): positive scores are divided, negative ones multiplied."""
    ids = _ids_inside(seen, scores)
    chosen = scores[ids]
    return scores.index_copy(0, ids, torch.where(chosen > 0, chosen / penalty, chosen * penalty))


def _ids_inside(token_ids: Iterable[int], scores: torch.Tensor) -> torch.Tensor:
    """The ids that the head has a row for; no other can be drawn, so edits of those change nothing."""
    vocab_size = scores.numel()
    inside = sorted({i for i in token_ids if 0 <= i < vocab_size})
    return torch.tensor(inside, dtype=torch.int64, device=scores.device)
