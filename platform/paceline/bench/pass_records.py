"""What `bench pass` is told and what it writes down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.bench.pass_candidates import Timing
from paceline.bench.stock_model import ModelSpec

Chosen = Mapping[str, tuple[str, int]]
"""Role ("engine", "stock", "matmuls", "parallel") -> kind of candidate and its threads."""

_ROUNDING_TOKENS = 32  # of a sequence's pages


@dataclass(frozen=True, slots=True)
class PassSetup:
    """What to measure."""

    folder: Path
    prompts: Sequence[tuple[int, ...]]
    dtype: str = "bfloat16"
    threads: Sequence[int] = (1, 2)
    blocks: int = 5
    num_tokens: int = 128
    context: int = 128
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
    repeats: int = 5  # passes of each size in a block
    parallel: int = 16
    seed: int = 0

    @property
    def spec(self) -> ModelSpec:
        """The model, with room for all that is asked of it at once."""
        longest = max(len(prompt) for prompt in self.prompts) + self.num_tokens + _ROUNDING_TOKENS
        return ModelSpec(self.folder, self.dtype, max(self.parallel * longest, self.context + max(self.sizes)))


@dataclass(slots=True)
class PassBlock:
    """What one block measured."""

    engine: list[Timing] = field(default_factory=list)
    stock: list[Timing] = field(default_factory=list)
    matmul_s: dict[int, float] = field(default_factory=dict)  # rows -> seconds of one pass
    together: list[Timing] = field(default_factory=list)  # one timing of all requests at once
    pass_s: dict[int, list[float]] = field(default_factory=dict)  # size -> seconds
