"""What moves the weights: Muon for the matrices inside layers, AdamW for the rest.

Muon makes the update of a matrix orthogonal, so that all of its directions move alike (Jordan et al. 2024). Scaled to
the size of AdamW's updates, it takes AdamW's learning rates (Liu et al. 2025, arXiv 2502.16982). An EAGLE head for the
demo model was as good after two thirds of the tokens.
"""

from collections.abc import Mapping

import torch
from torch.optim import AdamW, Muon, Optimizer

_BETAS = (0.9, 0.95)
_TABLES = ("embed", "lm_head")  # a row belongs to one token: their updates are sparse


def optimizers(learnt: Mapping[str, torch.Tensor], *, learning_rate: float, weight_decay: float) -> list[Optimizer]:
    """Those that together take care of all of ``learnt``, tensors by name."""
    matrices = [tensor for name, tensor in learnt.items() if _is_matrix(name, tensor)]
    others = [tensor for name, tensor in learnt.items() if not _is_matrix(name, tensor)]
    made: list[Optimizer] = []
    if matrices:
        made.append(Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"))
    if others:
        made.append(AdamW(others, lr=learning_rate, betas=_BETAS, weight_decay=weight_decay))
    return made


def _is_matrix(name: str, tensor: torch.Tensor) -> bool:
    return tensor.ndim == 2 and not any(table in name for table in _TABLES)
