"""Features of a sequence's tokens, read from where the target keeps them, in the form in which they travel."""

from collections.abc import Mapping

import numpy as np
import torch

from paceline.core.drafts import FeatureBlock
from paceline.core.model_identity import FeatureFacts
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.feature_store import FeatureStore


class StoredFeatures:
    """The feature stores of one target, by what is kept in them."""

    def __init__(self, stores: Mapping[FeatureFacts, FeatureStore], device: torch.device) -> None:
        self._stores = dict(stores)
        self._device = device

    def keeps(self, feature: FeatureFacts) -> bool:
        """Whether this feature of every computed token is there."""
        return feature in self._stores

    @torch.inference_mode()
    def read(self, feature: FeatureFacts, table: PageTable, start: int, stop: int) -> FeatureBlock:
        """Features of tokens ``[start, stop)``, 1 <= start <= stop <= computed tokens + 1; KeyError if not kept.

        That of token t lies in the slot of token t - 1. Other types than bfloat16 are rounded to it.
        """
        slots = torch.from_numpy(table.slot_array(stop - 1)[start - 1 :].astype(np.int64)).to(self._device)
        vectors = self._stores[feature].read(slots).to("cpu", torch.bfloat16)
        return FeatureBlock(stop - start, vectors.contiguous().view(torch.int16).numpy().tobytes())
