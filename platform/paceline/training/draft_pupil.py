"""A draft model as what learns: at every token of an answer it is to say what its target says there."""

from collections.abc import Sequence

import torch
from torch.nn.functional import pad

from paceline.training.corpus import Dialogue
from paceline.training.draft_model import DraftModel
from paceline.training.feature_cache import FeatureCache, HeadBatch
from paceline.training.fused_loss import fused_loss

_ROWS = 1024  # whose logits are looked at together in a check


class DraftPupil(torch.nn.Module):
    """A draft model with what its target said. Implements `Pupil`."""

    vocabulary: torch.Tensor  # [draft vocab] ids of the target
    known: torch.Tensor  # [vocab], whether a token can be drafted

    def __init__(self, draft: DraftModel, cache: FeatureCache, *, precision: torch.dtype = torch.bfloat16) -> None:
        """Teach ``draft`` what ``cache`` knows. ``precision`` is that of products; sums and weights stay float32."""
        super().__init__()
        self.draft = draft
        self._cache = cache
        self._precision = precision
        vocabulary = torch.tensor(draft.draft_token_ids)
        known = torch.zeros(draft.model.config.vocab_size, dtype=torch.bool)
        known[vocabulary] = True
        self.register_buffer("vocabulary", vocabulary, persistent=False)
        self.register_buffer("known", known, persistent=False)

    def forward(self, dialogues: Sequence[Dialogue], *, hybrid: bool) -> tuple[torch.Tensor, int]:
        """(mean loss of a batch, tokens that it was taken on).

        A token whose likeliest successor cannot be drafted does not count: the law over the rest is no guide there.
        """
        batch = self._batch(dialogues)
        wanted = batch.is_answer & self.known[batch.choices]
        count = int(wanted.sum())
        # Of no rows the loss is 0, and still has a gradient: workers that train together all need one.
        with self._rounded():
            hidden = self.draft(batch.token_ids)[wanted]
            loss = fused_loss(hidden, batch.hidden[wanted], self._head.to(self._precision), hybrid=hybrid)
        return loss / max(count, 1), count

    @torch.no_grad()
    def agreement(self, dialogues: Sequence[Dialogue], depth: int) -> torch.Tensor:
        """``[places, depth]``: whether the draft of each depth is the target's choice, with right tokens above it.

        Of all places of answers that have ``depth`` tokens of the answer behind them.
        """
        batch = self._batch(dialogues)
        with self._rounded():
            hidden = self.draft(batch.token_ids)[batch.is_answer]
        agrees = torch.zeros_like(batch.is_answer)
        agrees[batch.is_answer] = self._choices(hidden) == batch.choices[batch.is_answer]
        # A chain that begins at a place reads the tokens from there on, one a draft.
        chains, places = (pad(rows, (0, depth - 1)).unfold(1, depth, 1) for rows in (agrees, batch.is_answer))
        return chains[places.all(-1)]

    def learnt(self) -> dict[str, torch.Tensor]:
        """The tensors that are trained, by their names in the checkpoint."""
        return {name: tensor for name, tensor in self.draft.model.named_parameters() if tensor.requires_grad}

    def _batch(self, dialogues: Sequence[Dialogue]) -> HeadBatch:
        return self._cache.batch(dialogues).to(self.vocabulary.device)

    def _rounded(self) -> torch.autocast:
        rounded = self._precision is not torch.float32
        return torch.autocast(self.vocabulary.device.type, self._precision, enabled=rounded)

    def _choices(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = [(part.float() @ self._head.T).argmax(-1) for part in torch.split(hidden, _ROWS)]
        return self.vocabulary[torch.cat(rows)]

    @property
    def _head(self) -> torch.Tensor:
        head: torch.Tensor = self.draft.head  # type: ignore[assignment]
        return head
