"""Memory that every pass uses again."""

from collections.abc import Sequence

import torch


class Workspace:
    """Buffers ``[tokens, width]`` for the largest pass so far; a pass that fits allocates nothing."""

    def __init__(self, widths: Sequence[int], dtype: torch.dtype) -> None:
        self._widths = widths
        self._dtype = dtype
        self._capacity = 0  # tokens
        self._buffers: list[torch.Tensor] = []

    def buffers(self, num_tokens: int) -> list[torch.Tensor]:
        """One buffer per width, each with room for ``num_tokens`` rows; what is in them is not kept."""
        if num_tokens > self._capacity:
            self._capacity = 1 << (num_tokens - 1).bit_length()
            self._buffers = [torch.empty(self._capacity, width, dtype=self._dtype) for width in self._widths]
        return self._buffers
