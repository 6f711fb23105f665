"""Features of a target: which hidden states make one vector for each token of a pass."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from paceline.core.model_identity import FeatureFacts
from paceline.modeling.heads.fusion import Fusion, load_fusion
from paceline.modeling.loader import LoadedModel
from paceline.modeling.network import MIN_ROWS, TargetPass, WantedStates
from paceline.modeling.packed_linear import pack_linears

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
        self._fc = _packed(fusion.weight.to(dtype=loaded.dtype, device=loaded.device))

    def vectors(self, computed: TargetPass) -> torch.Tensor:
        """See `FeatureTap.vectors`. Few rows are padded, as a linear layer takes another code path for them."""
        joined = torch.cat([computed.inputs[layer] for layer in self._layers], dim=1)
        missing = max(0, MIN_ROWS - len(joined))
        fused: torch.Tensor = self._fc(torch.cat((joined, joined.new_zeros(missing, joined.shape[1]))))
        return fused[: len(joined)]


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


def _packed(weight: torch.Tensor) -> torch.nn.Module:
    """The product with ``weight``, in a form whose rows do not depend on each other where there is one."""
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    layers = torch.nn.Sequential(linear)
    if weight.is_cpu:
        pack_linears(layers)
    return layers
