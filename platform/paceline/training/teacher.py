"""The frozen target as what drafters learn from."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import linear

from paceline.modeling.heads.target_weights import TargetWeights, weights_of_model
from paceline.modeling.weights_version import weights_version
from paceline.training.plain_model import load_plain

_CANDIDATES = 4  # by rounded logits, among which exact ones decide
_CHUNK = 512  # places whose logits over the whole vocabulary are in memory at a time


class ModelTeacher:
    """A target of Transformers, in the precision that is served; computes what it is asked, and keeps nothing."""

    def __init__(self, folder: Path, *, dtype: torch.dtype = torch.bfloat16, device: str = "cpu") -> None:
        """Load the target in ``folder``. Raises ModelRefusedError for a family that is not tested."""
        self._model = load_plain(folder, dtype=dtype, device=device)
        self._version = f"{weights_version(folder)} {dtype}"

    @property
    def version(self) -> str:
        """Of the weights and of the arithmetic."""
        return self._version

    @property
    def hidden_size(self) -> int:
        """Numbers in a hidden state."""
        size: int = self._model.config.hidden_size
        return size

    @property
    def num_parameters(self) -> int:
        """Of the whole target; tied tables count once."""
        return self._model.num_parameters()

    @property
    def weights(self) -> TargetWeights:
        """What heads borrow from the target."""
        return weights_of_model(self._model)

    def hidden(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, hidden]`` after the last norm, for ids ``[batch, tokens]`` padded at the end."""
        token_ids = token_ids.to(self._model.device)
        hidden: torch.Tensor = self._model.model(input_ids=token_ids, use_cache=False).last_hidden_state
        return hidden

    def choices(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[n]``: the likeliest token of the whole vocabulary after each of ``hidden`` ([n, hidden])."""
        weight: torch.Tensor = self._model.get_output_embeddings().weight  # type: ignore[no-untyped-call]
        best = [torch.topk(linear(part, weight), _CANDIDATES).indices for part in torch.split(hidden, _CHUNK)]
        # Rounding makes ties; the few that may be the likeliest are computed again.
        candidates = torch.cat(best)
        logits = torch.einsum("nch,nh->nc", weight[candidates].float(), hidden.float())
        return candidates.gather(1, logits.argmax(-1, keepdim=True))[:, 0]

    def rows(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Rows ``[n, hidden]`` of the output head."""
        weight: torch.Tensor = self._model.get_output_embeddings().weight  # type: ignore[no-untyped-call]
        return weight[torch.tensor(tuple(token_ids))]
