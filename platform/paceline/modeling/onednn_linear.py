"""Linear layers over oneDNN's packed weights: what serves on CPU where nothing can be compiled.

PyTorch's own linear lays its weight out anew in each call and picks another summation order for
each number of rows, so the same token gets other last bits alone than among drafts. The packed
product is faster, and from `MIN_ROWS` rows on a row's bits do not depend on the rows beside it.
"""

import torch

MIN_ROWS = 4


class OneDnnLinear(torch.nn.Module):
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


def onednn_available() -> bool:
    """Whether this build of PyTorch has the operations."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def onednn_packs(dtype: torch.dtype) -> bool:
    """Whether weights of ``dtype`` can be packed here; bfloat16 takes a processor with AVX-512 or the like."""
    if dtype is torch.bfloat16:
        return onednn_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
    return dtype is torch.float32 and onednn_available()
