"""Linear layers whose weights are laid out once for oneDNN's matrix product.

PyTorch's own linear lays its weight out anew in each call and picks another summation order for
each number of rows, so the same token gets other last bits alone than among drafts. The packed
product is faster, and from four rows on a row's bits do not depend on the rows beside it.
"""

import logging

import torch

logger = logging.getLogger(__name__)

_PACKABLE = (torch.float32, torch.bfloat16)


class PackedLinear(torch.nn.Module):
    """``x @ weight.T + bias`` for inference on CPU; stands in for a `torch.nn.Linear`."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)  # noqa: SLF001
        bias: torch.Tensor | None = linear.bias
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., in_features]`` to ``[..., out_features]``."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001
            x, self._weight, self._bias, "none", [], ""
        )
        return result


def pack_linears(model: torch.nn.Module) -> int:
    """Replace the linear layers of ``model`` in place; returns how many.

    None where oneDNN or the device lacks the operation: the model then runs unpacked. A head that is
    tied to the embedding gets a copy of its own, as an embedding cannot be packed.
    """
    if not packing_available():
        logger.info("oneDNN's packed linear is not available; linear layers stay unpacked")
        return 0
    linears = {
        name: module
        for name, module in model.named_modules()
        if type(module) is torch.nn.Linear and module.weight.is_cpu and module.weight.dtype in _PACKABLE
    }
    for name, linear in linears.items():
        model.set_submodule(name, PackedLinear(linear))
    for parameter in model.parameters():
        # What is left views the mapped weight file, which would stay in memory as a whole.
        parameter.data = parameter.data.clone()
    return len(linears)


def packing_available() -> bool:
    """Whether this build of PyTorch has the operations."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
