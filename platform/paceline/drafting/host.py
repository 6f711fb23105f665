"""What a drafter is told about the process that it is made in."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.telemetry.metrics import Metrics

if TYPE_CHECKING:
    # Torch takes seconds to import; n-gram replicas never need it.
    from paceline.drafting.page_lender import PageLender
    from paceline.modeling.loader import LoadedModel
    from paceline.modeling.runner import ModelRunner


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """The target, where it is in the drafter's own process. The drafter works between passes, on the same thread."""

    loaded: "LoadedModel"
    runner: "ModelRunner"  # a head's memory is attached to it
    pages: "PageLender"


@dataclass(frozen=True, slots=True)
class DrafterHost:
    """The place of a drafter. Whatever is not known is None."""

    device: str = "cpu"
    metrics: Metrics = field(default_factory=Metrics)  # of the process
    target_folder: Path | None = None  # files of the target; a draft head takes its embedding and output head from them
    target_dtype: str = "float32"  # precision of the target
    local: LocalTarget | None = None  # None: the drafter is behind a link
