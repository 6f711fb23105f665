"""The arithmetic of one pass, behind one signature."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import NamedTuple, Protocol

import torch
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from paceline.modeling.step_meta import StepMeta

# A linear layer takes another code path for fewer rows, with other last bits: a pass through
# Transformers' modules is padded to this many tokens, and its head to as many logits.
MIN_ROWS = 4
_LAST = -1  # among places: after the final norm


class WantedStates(NamedTuple):
    """Hidden states of all tokens that a pass gives beside its logits."""

    last: bool = False  # after the final norm
    inputs: tuple[int, ...] = ()  # of these layers, ascending; the number of layers: what the final norm is given


class TargetPass(NamedTuple):
    """What one pass computes."""

    logits: torch.Tensor  # [wanted rows, vocab] float32
    last: torch.Tensor | None = None  # [tokens, hidden_size]; None where it is not wanted
    inputs: Mapping[int, torch.Tensor] = MappingProxyType({})  # [tokens, hidden_size] by layer


NO_STATES = WantedStates()


class Network(Protocol):
    """A model without its cache and its bookkeeping."""

    def run(self, step: StepMeta, states: WantedStates = NO_STATES) -> TargetPass:
        """One pass; writes the K/V of every token. Logits have the same bits whatever ``states`` are wanted."""


class ModuleNetwork:
    """Runs the modules of Transformers, with attention over pages in place of their own."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def run(self, step: StepMeta, states: WantedStates = NO_STATES) -> TargetPass:
        """See `Network.run`."""
        num_wanted = len(step.wanted)
        with _listening(self._model, states) as heard:
            output = self._model(
                input_ids=_padded(step.token_ids, 0).unsqueeze(0),
                position_ids=_padded(step.positions, 0).unsqueeze(0),
                use_cache=False,
                step=step,
                logits_to_keep=_padded(step.wanted, 0) if num_wanted else step.wanted,
            )
        logits: torch.Tensor = output.logits
        found = {place: hidden[0, : step.num_tokens] for place, hidden in heard.items()}
        last = found.pop(_LAST, None)
        return TargetPass(logits[0, :num_wanted].float(), last, found)


@contextmanager
def _listening(model: PreTrainedModel, states: WantedStates) -> Iterator[dict[int, torch.Tensor]]:
    """Fills a dict with the inputs of layers, and with the result of the final norm as `_LAST`, as they are computed.

    Transformers' own ``output_hidden_states`` would keep all layers' and lacks what the final norm is given.
    """
    heard: dict[int, torch.Tensor] = {}
    decoder = model.base_model
    places = [*decoder.layers, decoder.norm]  # type: ignore[misc]

    def on_input(place: int) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda _, args: heard.update({place: args[0].clone()})

    with ExitStack() as stack:
        for place in states.inputs:
            stack.enter_context(_removing(places[place].register_forward_pre_hook(on_input(place))))
        if states.last:
            stack.enter_context(
                _removing(decoder.norm.register_forward_hook(lambda _, __, normed: heard.update({_LAST: normed})))  # type: ignore[union-attr]
            )
        yield heard


@contextmanager
def _removing(handle: RemovableHandle) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def _padded(values: torch.Tensor, filler: int) -> torch.Tensor:
    missing = MIN_ROWS - len(values)
    return torch.cat((values, values.new_full((missing,), filler))) if missing > 0 else values
