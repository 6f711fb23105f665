"""Features of a target: which hidden states make one vector for each token of a pass."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch.nn.functional import linear

from paceline.core.model_identity import FeatureFacts
from paceline.kernels.decoder_layers import Epilogue, decoder_kernels
from paceline.modeling.heads.fusion import Fusion, load_fusion
from paceline.modeling.loader import LoadedModel
from paceline.modeling.network import MIN_ROWS, TargetPass, WantedStates
from paceline.modeling.packed_weight import PACKABLE, PackedWeight

LAST = "last"


class FeatureTap(Protocol):
    """Makes features of one kind in the passes of a target."""

    facts: FeatureFacts
    states: WantedStates
    """What it needs of a pass."""

    def vectors(self, computed: TargetPass) -> torch.Tensor:
        """``[tokens, facts.size]``: the feature for a child of each token. A row's bits do not depend on the others."""


class LastTap:
    """The hidden state after the final norm, which the output head sees. Implements `FeatureTap`."""

    states = WantedStates(last=True)

    def __init__(self, loaded: LoadedModel) -> None:
        self.facts = FeatureFacts(LAST, loaded.hidden_size)

    def vectors(self, computed: TargetPass) -> torch.Tensor:
        """See `FeatureTap.vectors`."""
        if computed.last is None:
            raise ValueError("the pass was not asked for its last hidden states")
        return computed.last


class FusedTap:
    """Inputs of several layers through the ``fc`` of an EAGLE-3 head (Li et al. 2025). Implements `FeatureTap`."""

    def __init__(self, loaded: LoadedModel, fusion: Fusion) -> None:
        """Raises ModelRefusedError where the target has too few layers."""
        self.facts = fusion.feature
        self._layers = fusion.layers(loaded.num_layers)
        self.states = WantedStates(inputs=tuple(sorted(self._layers)))
        self._weight = fusion.weight.to(dtype=loaded.dtype, device=loaded.device)
        kernels = decoder_kernels() if _packs(self._weight) else None
        self._kernels = kernels
        self._packed = None if kernels is None else PackedWeight([self._weight])

    def vectors(self, computed: TargetPass) -> torch.Tensor:
        """See `FeatureTap.vectors`."""
        joined = torch.cat([computed.inputs[layer] for layer in self._layers], dim=1)
        if self._packed is None or self._kernels is None:
            missing = max(0, MIN_ROWS - len(joined))  # few rows would take another code path, with other last bits
            padded = torch.cat((joined, joined.new_zeros(missing, joined.shape[1])))
            return linear(padded, self._weight)[: len(joined)]
        out = joined.new_empty(len(joined), self.facts.size)
        self._packed.apply(self._kernels, joined, out, Epilogue.PLAIN, threads=torch.get_num_threads())
        return out


def make_taps(loaded: LoadedModel, *, last: bool, fused: Sequence[Path]) -> list[FeatureTap]:
    """Taps for what drafters of a target need: ``fused`` are folders of EAGLE-3 heads; those that fuse alike share one.

    Raises ModelRefusedError or ModelUnavailableError.
    """
    taps: list[FeatureTap] = [LastTap(loaded)] if last else []
    for folder in fused:
        tap = FusedTap(loaded, load_fusion(folder))
        if tap.facts not in [other.facts for other in taps]:
            taps.append(tap)
    return taps


def all_states(taps: Sequence[FeatureTap]) -> WantedStates:
    """What a pass must give for all ``taps``."""
    inputs = {layer for tap in taps for layer in tap.states.inputs}
    return WantedStates(any(tap.states.last for tap in taps), tuple(sorted(inputs)))


def _packs(weight: torch.Tensor) -> bool:
    # Half-precision panels hold inputs in pairs.
    return weight.is_cpu and weight.dtype in PACKABLE and (weight.dtype is torch.float32 or weight.shape[1] % 2 == 0)
