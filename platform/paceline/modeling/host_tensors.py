"""Arrays made on the host that a pass needs on its device."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A tensor of ``values`` on ``device``; on CPU it shares their memory, elsewhere nobody waits for the copy."""
    host = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cpu":
        return host
    return host.pin_memory().to(device, non_blocking=True)
