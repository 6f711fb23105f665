"""Reduced draft vocabularies: laws over a few thousand ids, from as many logits."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from paceline.core.sampling_params import SamplingParams
from paceline.verification.law import TokenLaw
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_law


class DraftIds:
    """Which token each logit of a drafter belongs to.

    A law over these ids is the warped law of the same logits with -inf for every other id, at the cost of the few:
    edits are made and noise is drawn by the true ids.
    """

    def __init__(self, token_ids: Sequence[int], *, device: torch.device | None = None) -> None:
        """``token_ids`` ascend; logit i is that of ``token_ids[i]``."""
        self.token_ids = torch.tensor(token_ids, dtype=torch.int64, device=device)
        self._slots = {token_id: slot for slot, token_id in enumerate(token_ids)}

    def __len__(self) -> int:
        return len(self._slots)

    def law(self, logits: torch.Tensor, state: SamplerState) -> TokenLaw:
        """`target_law` of ``logits`` [draft vocab]. EngineFailedError where every id that is left is masked."""
        law = target_law(logits, _StateBySlots(state, self))
        return TokenLaw(law.log_weights, self.token_ids if law.token_ids is None else self.token_ids[law.token_ids])

    def slots(self, token_ids: Iterable[int]) -> dict[int, int]:
        """Slot of each of ``token_ids`` that can be drafted, by id."""
        return {token_id: self._slots[token_id] for token_id in token_ids if token_id in self._slots}


class _StateBySlots:
    """A sampler's state as logits of a reduced vocabulary see it: what is said of ids is said of slots."""

    def __init__(self, state: SamplerState, draft_ids: DraftIds) -> None:
        self._state = state
        self._draft_ids = draft_ids
        self.params: SamplingParams = state.params
        if state.params.logit_bias:
            bias = dict(state.params.logit_bias)
            kept = tuple((slot, bias[token_id]) for token_id, slot in draft_ids.slots(bias).items())
            self.params = replace(state.params, logit_bias=kept)

    @property
    def position(self) -> int:
        """See `SamplerState.position`."""
        return self._state.position

    def output_counts(self) -> dict[int, int]:
        """Of slots."""
        counts = self._state.output_counts()
        return {slot: counts[token_id] for token_id, slot in self._draft_ids.slots(counts).items()}

    def seen_token_ids(self) -> frozenset[int]:
        """Slots."""
        return frozenset(self._draft_ids.slots(self._state.seen_token_ids()).values())

    def banned_token_ids(self) -> set[int]:
        """Slots."""
        return set(self._draft_ids.slots(self._state.banned_token_ids()).values())
