"""Draft heads as what learns: which token is paired with which feature, and what is to be predicted from it.

Token t comes with the feature that the target computed at token t - 1, and predicts token t + 1; token 0 has none and
is left out. ``u = t - 1`` counts from the first token that has one.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch.nn.functional import pad

from paceline.modeling.heads.checkpoint import Head
from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.medusa_head import MedusaHead
from paceline.training.corpus import Dialogue
from paceline.training.feature_cache import HeadBatch
from paceline.training.fused_loss import fused_loss
from paceline.training.unrolled_attention import StepKeys, use_unrolled_attention

_ROWS = 1024  # whose logits are looked at together in a check


@dataclass(frozen=True, slots=True)
class Lesson:
    """What of a head is trained."""

    depth: int = 1  # drafts in a row that are trained: steps of EAGLE and MTP on their own guesses
    decay: float = 0.8  # weight of a step's loss over that of the step before
    without_feature: bool = False  # for ablations: the feature is zero, and so are its weights
    unshifted: bool = False  # for ablations: the embedding of the token that the feature was computed at
    precision: torch.dtype = torch.bfloat16  # of products; sums and weights stay float32


class Step(NamedTuple):
    """One draft of all places at once."""

    hidden: torch.Tensor  # [batch, tokens, hidden], what the output head reads
    ahead: int  # the target answers at the place that lies so many behind the query's
    first: int  # first place that is a draft of this depth
    root: int  # the chain's root lies so many places before the query


class Features(Protocol):
    """Where features come from: `FeatureCache`, or a target that learns too."""

    def batch(self, dialogues: Sequence[Dialogue]) -> HeadBatch:
        """Dialogues side by side with their features."""


class HeadPupil(torch.nn.Module):
    """A head with the features that it learns from."""

    vocabulary: torch.Tensor  # [draft vocab] ids of the target
    known: torch.Tensor  # [vocab], whether a token can be drafted
    output: torch.Tensor  # [draft vocab, hidden], and the same in the precision of products
    output_rounded: torch.Tensor

    def __init__(self, head: Head, features: Features, lesson: Lesson) -> None:
        super().__init__()
        self.head = head
        self.lesson = lesson
        self._features = features
        ids = head.spec.draft_token_ids
        vocabulary = torch.arange(head.spec.vocab_size) if ids is None else torch.tensor(ids)
        known = torch.zeros(head.spec.vocab_size, dtype=torch.bool)
        known[vocabulary] = True
        self.register_buffer("vocabulary", vocabulary, persistent=False)
        self.register_buffer("known", known, persistent=False)
        output = head.target.output_rows(ids).detach().clone()
        self.register_buffer("output", output, persistent=False)
        self.register_buffer("output_rounded", output.to(lesson.precision), persistent=False)

    @abstractmethod
    def steps(self, batch: HeadBatch, depth: int) -> Iterator[Step]:
        """The drafts of depth 1, 2, ... ``depth``."""

    def forward(self, dialogues: Sequence[Dialogue], *, hybrid: bool) -> tuple[torch.Tensor, int]:
        """(mean loss of a batch, tokens that it was taken on).

        Steps count by the lesson's decay. A token whose likeliest successor cannot be drafted does not count.
        """
        batch = self.batch(dialogues)
        total = torch.zeros((), device=batch.hidden.device)
        weights, tokens = 0.0, 0
        with self._rounded():
            for index, step in enumerate(self.steps(batch, self.lesson.depth)):
                hidden, answer, wanted = _drafts(step, batch)
                wanted = wanted & self.known[answer.choices]
                count = int(wanted.sum())
                # Of no rows it is 0, and still has a gradient: workers that train together all need one.
                loss = fused_loss(hidden[wanted], answer.hidden[wanted], self.output_rounded, hybrid=hybrid)
                total = total + self.lesson.decay**index * loss / max(count, 1)
                tokens += count if index == 0 else 0
                weights += self.lesson.decay**index
        return total / weights, tokens

    @torch.no_grad()
    def agreement(self, dialogues: Sequence[Dialogue], depth: int) -> torch.Tensor:
        """``[places, depth]``: whether the draft of each depth is the target's choice, with right tokens above it.

        Of all places of answers that have as many tokens of the answer behind them; fewer depths where the head has
        no more.
        """
        batch = self.batch(dialogues)
        width = batch.token_ids.shape[1] - 1
        whole = batch.is_answer[:, 1:].clone()  # by root
        agrees = []
        with self._rounded():
            for step in self.steps(batch, depth):
                hidden, answer, wanted = _drafts(step, batch)
                chosen = torch.full_like(answer.choices, -1)
                chosen[wanted] = self._choices(hidden[wanted])
                # The root of this chain lies `root` before the query; roots near the end have no such draft.
                short = width - (wanted.shape[1] - step.root)
                agrees.append(pad((chosen == answer.choices)[:, step.root :], (0, short)))
                whole &= pad(wanted[:, step.root :], (0, short))
        return torch.stack(agrees, dim=-1)[whole]

    def learnt(self) -> dict[str, torch.Tensor]:
        """The head's tensors, by name."""
        return dict(self.head.named_parameters())

    def batch(self, dialogues: Sequence[Dialogue]) -> HeadBatch:
        """Dialogues with their features, where the head is."""
        return self._features.batch(dialogues).to(self.output.device)

    def _rounded(self) -> torch.autocast:
        rounded = self.lesson.precision is not torch.float32
        return torch.autocast(self.output.device.type, self.lesson.precision, enabled=rounded)

    def _choices(self, hidden: torch.Tensor) -> torch.Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            rows = [(part.float() @ self.output.T).argmax(-1) for part in torch.split(hidden, _ROWS)]
        return self.vocabulary[torch.cat(rows)] if rows else self.vocabulary[:0]


class ChainPupil(HeadPupil):
    """EAGLE, and MTP whose modules follow each other: every draft reads what the one before made."""

    head: DraftHead

    def __init__(self, head: DraftHead, features: Features, lesson: Lesson) -> None:
        super().__init__(head, features, lesson)
        use_unrolled_attention(head)
        if lesson.without_feature:
            _forget_feature(head)

    def steps(self, batch: HeadBatch, depth: int) -> Iterator[Step]:
        """See `HeadPupil.steps`."""
        token_ids = batch.token_ids[:, :-1] if self.lesson.unshifted else batch.token_ids[:, 1:]
        embeddings = self.head.embed(token_ids).float()
        positions = torch.arange(1, batch.token_ids.shape[1], device=token_ids.device).expand(len(token_ids), -1)
        features, keys = batch.hidden[:, :-1], StepKeys()
        for step in range(1, depth + 1):
            if 1 < step <= self.head.spec.num_modules:
                keys = StepKeys(first=step - 1)  # another module, with K/V of its own
            if self.lesson.without_feature:
                features = torch.zeros_like(features)
            hidden = self.head(embeddings, features, positions=positions, depth=step, keys=keys)
            yield Step(self.head.output_input(hidden, step), ahead=1, first=step - 1, root=step - 1)
            # The child of token u reads what was made at u.
            features = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1]), dim=1)


class ParallelPupil(HeadPupil):
    """Medusa, and MTP whose modules all read the target's feature."""

    def steps(self, batch: HeadBatch, depth: int) -> Iterator[Step]:
        """See `HeadPupil.steps`; no more than there are modules."""
        features = batch.hidden[:, :-1]
        embeddings = self.head.target.embedding[batch.token_ids[:, 1:]].float()
        for step in range(1, min(depth, self.head.spec.num_modules) + 1):
            if isinstance(self.head, MedusaHead):
                hidden = self.head.blocks[step - 1](features)
            else:
                hidden = self.head.output_input(self.head(embeddings, features, depth=step), step)
            yield Step(hidden, ahead=step, first=0, root=0)


def pupil_of(head: Head, features: Features, lesson: Lesson) -> HeadPupil:
    """The pupil that trains this kind of head."""
    if isinstance(head, MedusaHead) or head.spec.variant == "parallel":
        return ParallelPupil(head, features, lesson)
    return ChainPupil(head, features, lesson)


class _Answer(NamedTuple):
    hidden: torch.Tensor  # of the target
    choices: torch.Tensor


def _drafts(step: Step, batch: HeadBatch) -> tuple[torch.Tensor, _Answer, torch.Tensor]:
    """(hidden states, what the target says there, which places count), all over ``[batch, tokens - ahead]``."""
    count = batch.token_ids.shape[1] - step.ahead
    answer = _Answer(batch.hidden[:, step.ahead :], batch.choices[:, step.ahead :])
    wanted = batch.is_answer[:, step.ahead :].clone()
    wanted[:, : step.first] = False
    return step.hidden[:, :count], answer, wanted


def _forget_feature(head: DraftHead) -> None:
    """Weights of the feature become zero, and stay so: what reads zeros gets no gradient."""
    for name, parameter in head.named_parameters():
        if name.endswith(("fc.weight", "eh_proj.weight")):
            with torch.no_grad():
                parameter[:, head.spec.hidden_size :] = 0
