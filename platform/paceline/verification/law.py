"""The distribution of one token, and the one way to draw from it."""

from functools import cached_property, lru_cache

import torch

from paceline.core.drafts import SparseLaw
from paceline.verification.noise import gumbel, may_exceed, token_bits

_HEAD = 64  # ids whose noise is always taken in full; more costs logarithms, fewer lets more of the tail in


@lru_cache(maxsize=8)
def _all_ids(vocab_size: int, device: torch.device) -> torch.Tensor:
    return torch.arange(vocab_size, device=device)


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
    def probabilities(self) -> torch.Tensor:
        """float64 [support], sums to 1."""
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
        return torch.where(inside, self.probabilities[slots], 0.0)

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

    def draw(self, row_key: int) -> int:
        """The id with the largest log-weight + Gumbel noise; ties go to the lowest id.

        Exact, yet most ids never cost a logarithm: the ids outside the ``_HEAD`` heaviest have weights
        of at most the lightest in it, so they must beat one common level of noise to win.
        """
        size = self.log_weights.numel()
        if size == 1:
            return int(self._ids[0])
        bits = token_bits(row_key, self._ids)
        if size <= 2 * _HEAD:
            scores = self.log_weights.double() + gumbel(bits)
            return int(self._ids[scores.argmax()])
        head = torch.topk(self.log_weights, _HEAD, sorted=True)
        best = float((head.values.double() + gumbel(bits[head.indices])).max())
        candidates = may_exceed(bits, best - float(head.values[-1]))
        candidates[head.indices] = True
        slots = candidates.nonzero().squeeze(1)  # ascending, so argmax returns the lowest id of a tie
        scores = self.log_weights[slots].double() + gumbel(bits[slots])
        return int(self._ids[slots[scores.argmax()]])

    @property
    def _ids(self) -> torch.Tensor:
        if self.token_ids is not None:
            return self.token_ids
        return _all_ids(self.log_weights.numel(), self.log_weights.device)


def sparse_probabilities(law: SparseLaw) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (int64, ascending) and float64 probabilities of a law that travelled.

    The float32 wire values are divided by their float64 sum. Drafter and verifier both call this, so the
    law that a draft was drawn from and the law that it is tested against are the same numbers.
    """
    order = sorted(range(len(law.token_ids)), key=law.token_ids.__getitem__)
    token_ids = torch.tensor([law.token_ids[i] for i in order], dtype=torch.int64)
    weights = torch.tensor([law.probabilities[i] for i in order], dtype=torch.float64)
    return token_ids, weights / weights.sum()


def draw_from(law: SparseLaw, row_key: int) -> int:
    """Draw from exactly the law that is sent."""
    token_ids, probabilities = sparse_probabilities(law)
    return TokenLaw(probabilities.log(), token_ids).draw(row_key)
