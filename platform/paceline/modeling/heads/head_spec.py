"""What a draft head is, without its weights."""

from dataclasses import dataclass
from typing import Literal

from paceline.core.model_identity import FeatureFacts

Method = Literal["medusa", "eagle", "mtp"]
Variant = Literal["medusa", "eagle", "eagle3", "sequential", "parallel"]


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """Sizes of a head and what it reads.

    ``eagle`` reads (embedding, feature) of every token through one decoder layer, ``mtp`` through one layer a
    module; ``parallel`` modules of MTP read the feature alone. ``medusa`` reads the newest feature, and has no K/V.
    """

    method: Method
    variant: Variant
    feature: FeatureFacts
    hidden_size: int
    vocab_size: int  # of the target, padding included
    num_modules: int  # Medusa: heads; MTP: modules; EAGLE: 1
    num_kv_layers: int  # layers of the head's K/V store: one a module; Medusa: 0
    num_kv_heads: int
    head_dim: int
    context_length: int  # most positions that the head's rotary angles cover
    draft_token_ids: tuple[int, ...] | None = None  # ascending; None: the whole vocabulary
    weights_version: str = ""  # empty before it was saved

    @property
    def draft_vocab_size(self) -> int:
        """Tokens that the head can propose."""
        return self.vocab_size if self.draft_token_ids is None else len(self.draft_token_ids)
