"""Trunk and MTP modules trained together, as DeepSeek-V3 (2024) does: it makes another target.

The loss is that of the tokens themselves, L = CE(trunk) + lambda / D * sum over D modules of CE(module), over tokens
of answers. Embedding and output head are shared and learn from both.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy, linear
from transformers import PreTrainedModel

from paceline.modeling.heads.layout import NUM_MODULES
from paceline.modeling.heads.mtp_head import MtpHead
from paceline.modeling.heads.save_head import WEIGHTS_FILE, save_head
from paceline.training.corpus import Dialogue
from paceline.training.feature_cache import HeadBatch, padded
from paceline.training.head_pupil import ChainPupil, Lesson

_LENT = "lm_head.weight"  # not written where it is the embedding
_NOT_COPIED = {"config.json", "model.safetensors.index.json"}
_COPIED = {".json", ".txt", ".jinja", ".model"}  # tokenizer, chat template, defaults of generation


class LiveFeatures:
    """What `FeatureCache` gives, from a model that changes meanwhile; gradients reach the model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def batch(self, dialogues: Sequence[Dialogue]) -> HeadBatch:
        """The model's hidden states for some dialogues, and its choices."""
        token_ids, is_answer = padded(dialogues)
        device = self._model.device
        token_ids, is_answer = token_ids.to(device), is_answer.to(device)
        hidden = self._model.model(input_ids=token_ids, use_cache=False).last_hidden_state
        with torch.no_grad():
            choices = linear(hidden, output_weight(self._model)).argmax(-1)
        return HeadBatch(token_ids, hidden, choices, is_answer)


class JointPupil(torch.nn.Module):
    """A model and its modules, all of which learn."""

    def __init__(self, model: PreTrainedModel, head: MtpHead, *, weight: float) -> None:
        """``weight`` is lambda: of the modules' loss beside the model's own."""
        super().__init__()
        self.model = model.requires_grad_(requires_grad=True)
        embedding: torch.Tensor = model.model.embed_tokens.weight
        head.target = dataclasses.replace(head.target, embedding=embedding, output=output_weight(model))
        lesson = Lesson(depth=head.spec.num_modules, precision=torch.float32)
        self.modules_pupil = ChainPupil(head, LiveFeatures(model), lesson)
        self._weight = weight

    def forward(self, dialogues: Sequence[Dialogue], *, hybrid: bool) -> tuple[torch.Tensor, int]:  # noqa: ARG002 - the tokens themselves are learnt
        """(mean loss of a batch, tokens that it was taken on)."""
        pupil = self.modules_pupil
        batch = pupil.batch(dialogues)
        following = batch.token_ids.roll(-1, dims=1)
        output = output_weight(self.model)
        loss = cross_entropy(linear(batch.hidden[batch.is_answer], output), following[batch.is_answer])
        depth = pupil.lesson.depth
        for step in pupil.steps(batch, depth):
            wanted = batch.is_answer[:, step.ahead :].clone()
            wanted[:, : step.first] = False
            if wanted.any():
                logits = linear(step.hidden[:, : wanted.shape[1]][wanted], output)
                loss = loss + self._weight / depth * cross_entropy(logits, following[:, step.ahead :][wanted])
        return loss, int(batch.is_answer.sum())

    def agreement(self, dialogues: Sequence[Dialogue], depth: int) -> torch.Tensor:
        """See `HeadPupil.agreement`; the target is the model as it is now."""
        self.modules_pupil.output.copy_(output_weight(self.model).detach())
        return self.modules_pupil.agreement(dialogues, depth)

    def learnt(self) -> dict[str, torch.Tensor]:
        """Tensors of both."""
        trunk = {f"model.{name}": tensor for name, tensor in self.model.named_parameters()}
        return trunk | {f"head.{name}": tensor for name, tensor in self.modules_pupil.learnt().items()}


def output_weight(model: PreTrainedModel) -> torch.Tensor:
    """``[vocab, hidden]`` of the output head; learns if the model does."""
    weight: torch.Tensor = model.get_output_embeddings().weight  # type: ignore[no-untyped-call]
    return weight


def save_joint(
    model: PreTrainedModel, head: MtpHead, folder: Path, *, old: Path, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Write a target with its own MTP modules to ``folder``; the rest comes from the ``old`` target's folder."""
    save_head(head, folder, dtype=dtype)
    tensors = load_file(folder / WEIGHTS_FILE)
    for name, tensor in model.state_dict().items():
        if not (name == _LENT and model.config.tie_word_embeddings):
            tensors[name] = tensor.detach().to(dtype).cpu().contiguous()
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config = json.loads((old / "config.json").read_text("utf-8"))
    config |= {NUM_MODULES: head.spec.num_modules, "dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    for file in old.iterdir():
        if file.suffix in _COPIED and file.name not in _NOT_COPIED:
            (folder / file.name).write_bytes(file.read_bytes())
