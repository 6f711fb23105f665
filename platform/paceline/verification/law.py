"""The distribution of one token, and the one way to draw from it."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from paceline.core.drafts import SparseLaw
from paceline.errors import EngineFailedError
from paceline.kernels import token_law
from paceline.kernels.token_noise import NoisyRow
from paceline.verification.noisy_best import best_slots


class RankedId(NamedTuple):
    """A token id, and its log-weight plus noise."""

    token_id: int
    score: float


class TokenLaw:
    """A distribution over token ids: a support and unnormalised log-weights.

    ``token_ids`` is int64, ascending, without repeats, or None for the whole vocabulary. ``log_weights``
    has the dtype of the logits; -inf is probability zero, and at least one weight is finite. Both are
    read-only and may share memory with the logits.
    """

    def __init__(self, log_weights: torch.Tensor, token_ids: torch.Tensor | None = None) -> None:
        self.log_weights = log_weights  # [support]
        self.token_ids = token_ids  # [support]

    @staticmethod
    def point(token_id: int) -> "TokenLaw":
        """All mass on one id."""
        return TokenLaw(torch.zeros(1), torch.tensor([token_id]))

    @cached_property
    def log_total(self) -> float:
        """Log of the sum of the weights, in float64."""
        if token_law.serves(self.log_weights):
            return token_law.log_total(self.log_weights)
        return float(torch.logsumexp(self.log_weights.double(), dim=0))

    @cached_property
    def probabilities(self) -> torch.Tensor:
        """float64 [support], sums to 1. Costs an exponential per id: verification asks for single ids."""
        return torch.softmax(self.log_weights, dim=0, dtype=torch.float64)

    def locate(self, token_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Slots of ``token_ids`` (int64 [n], any device) in the support, and which of them are in it."""
        token_ids = token_ids.to(self.log_weights.device)
        size = self.log_weights.numel()
        if self.token_ids is None:
            return token_ids.clamp(0, size - 1), (token_ids >= 0) & (token_ids < size)
        slots = torch.searchsorted(self.token_ids, token_ids).clamp_(max=size - 1)
        return slots, self.token_ids[slots] == token_ids

    def probabilities_of(self, token_ids: torch.Tensor) -> torch.Tensor:
        """float64 [n] for int64 [n]; 0 for ids outside the support."""
        slots, inside = self.locate(token_ids)
        return torch.where(inside, (self.log_weights[slots].double() - self.log_total).exp_(), 0.0)

    def probability(self, token_id: int) -> float:
        """Of one id."""
        return float(self.probabilities_of(torch.tensor([token_id])))

    def dense(self, vocab_size: int) -> torch.Tensor:
        """float64 [vocab_size]."""
        if self.token_ids is None:
            return self.probabilities.clone()
        dense = torch.zeros(vocab_size, dtype=torch.float64, device=self.log_weights.device)
        dense[self.token_ids] = self.probabilities
        return dense

    def reweighted(self, token_ids: torch.Tensor, weights: torch.Tensor) -> "TokenLaw":
        """Proportional to this law, but with ``weights`` (float64 [n]) in place of the probabilities of ``token_ids``.

        Ids outside the support stay outside. Where no weight is left the answer is this law itself.
        """
        log_weights = self.log_weights.double() - self.log_total  # a copy
        slots, inside = self.locate(token_ids)
        log_weights[slots[inside]] = weights.to(log_weights.device)[inside].log()
        return TokenLaw(log_weights, self.token_ids) if bool((log_weights > -torch.inf).any()) else self

    def draw(self, row_key: int) -> int:
        """The id with the largest log-weight + Gumbel noise; ties go to the lowest id."""
        return draw_ids([self], [row_key])[0]

    def ranked_draw(self, row_key: int, count: int) -> list[RankedId]:
        """The ``count`` ids of largest log-weight + Gumbel noise, best first; fewer where the law has fewer.

        They are draws without replacement, in order (Kool et al. 2019).
        """
        ranked = best_slots([NoisyRow(self.log_weights, self.token_ids, row_key)], count=count)[0]
        return [RankedId(self._id(slot), score) for slot, score in ranked]

    def _id(self, slot: int) -> int:
        return slot if self.token_ids is None else int(self.token_ids[slot])


def draw_ids(laws: Sequence[TokenLaw], row_keys: Sequence[int]) -> list[int]:
    """`TokenLaw.draw` of many laws at once. EngineFailedError where one is no distribution."""
    drawn = [law._id(0) if law.log_weights.numel() == 1 else None for law in laws]  # noqa: SLF001 - same module
    left = [index for index, token_id in enumerate(drawn) if token_id is None]
    rows = [NoisyRow(laws[index].log_weights, laws[index].token_ids, row_keys[index]) for index in left]
    for index, slots in zip(left, best_slots(rows, count=1), strict=True):
        if not slots or not math.isfinite(slots[0].score):
            raise EngineFailedError("no token can be drawn: the logits are not finite, or every token is masked")
        drawn[index] = laws[index]._id(slots[0].slot)  # noqa: SLF001 - same module
    return [token_id for token_id in drawn if token_id is not None]


def sparse_probabilities(law: SparseLaw) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (int64, ascending) and float64 probabilities of a law that travelled.

    The float32 wire values are divided by their float64 sum. Drafter and verifier both call this, so the
    law that a draft was drawn from and the law that it is tested against are the same numbers.
    """
    token_ids, order = torch.sort(torch.tensor(law.token_ids, dtype=torch.int64))
    weights = torch.tensor(law.probabilities, dtype=torch.float64)[order]
    return token_ids, weights / weights.sum()


def draw_from(law: SparseLaw, row_key: int) -> int:
    """Draw from exactly the law that is sent."""
    token_ids, probabilities = sparse_probabilities(law)
    return TokenLaw(probabilities.log(), token_ids).draw(row_key)
