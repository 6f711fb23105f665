"""Heads by the modules of Transformers with attention over pages: the readable form, EAGLE-3, and CUDA."""

import torch

from paceline.modeling.attention import ATTENTION_NAME, register_attention
from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.head_output import HeadOutput
from paceline.modeling.network import MIN_ROWS
from paceline.modeling.packed_linear import pack_linears
from paceline.modeling.step_meta import StepMeta


class ModuleHead:
    """Runs a `DraftHead` over pages; takes it over: its attention is not that of training any more."""

    def __init__(self, head: DraftHead, *, pack: bool = True) -> None:
        register_attention()
        self._head = head.requires_grad_(requires_grad=False)
        self._head.train(mode=False)
        self._head.config._attn_implementation = ATTENTION_NAME  # noqa: SLF001 - Transformers' name for it
        if pack and head.target.embedding.is_cpu:
            pack_linears(head)

    def run(self, step: StepMeta, features: torch.Tensor, depth: int) -> HeadOutput:
        """See `HeadNetwork.run`. Few rows are padded, as a linear layer takes another code path for them."""
        num_tokens, num_wanted = step.num_tokens, len(step.wanted)
        embeddings = self._head.embed(_padded(step.token_ids))
        hidden: torch.Tensor = self._head(
            embeddings.unsqueeze(0),
            _padded(features).unsqueeze(0),
            positions=_padded(step.positions).unsqueeze(0),
            depth=depth,
            step=step,
        )[0]
        logits = self._head.draft_logits(hidden.index_select(0, _padded(step.wanted)), depth)
        return HeadOutput(logits[:num_wanted].float(), hidden[:num_tokens])


def _padded(values: torch.Tensor) -> torch.Tensor:
    missing = MIN_ROWS - len(values)
    return torch.cat((values, values.new_zeros(missing, *values.shape[1:]))) if missing > 0 else values
