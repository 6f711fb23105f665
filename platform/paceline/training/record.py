"""What training leaves beside the weights that it made: enough to repeat it, and to write the model's card."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline.config.locate import find_shipped
from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue

FILE = "training.json"
FORMAT = "paceline-training-1"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that was trained on."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """How a drafter came about."""

    method: str  # of the configuration: "eagle", "mtp", "medusa", "draft_model"
    target: str  # name or hub id
    commands: tuple[str, ...]  # as typed, in order; without folders of one machine
    seed: int
    data: tuple[DataFile, ...]
    dialogues: int  # different ones, those held out not counted
    answer_tokens: int  # different ones, those held out not counted
    token_passes: int  # answer tokens that a loss was taken on, repeats included
    seconds: float
    parameters: int  # that the drafter adds; what it borrows from the target does not count
    target_parameters: int
    options: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)  # on the dialogues that were held out

    @property
    def share(self) -> float:
        """Parameters that the drafter adds over those of the target."""
        return self.parameters / self.target_parameters

    def after(self, earlier: "TrainingRecord") -> "TrainingRecord":
        """The record of both trainings, where this one went on from what ``earlier`` had made."""
        return replace(
            self,
            commands=(*earlier.commands, *self.commands),
            token_passes=earlier.token_passes + self.token_passes,
            seconds=earlier.seconds + self.seconds,
        )


def data_files(paths: Sequence[Path]) -> tuple[DataFile, ...]:
    """The files as they are now: ask before they are read, since answers may be appended while a training runs.

    Raises ConfigError for one that cannot be read.
    """
    try:
        return tuple(DataFile(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.") from error


def training_record(
    method: str,
    *,
    target: str,
    command: str,
    data: Sequence[DataFile],
    dialogues: Sequence[Dialogue],
    token_passes: int,
    seconds: float,
    parameters: int,
    target_parameters: int,
    seed: int,
    options: Mapping[str, Any],
    measured: Mapping[str, Any],
) -> TrainingRecord:
    """The record of a training on ``dialogues``, which came from the files ``data`` (see `data_files`)."""
    return TrainingRecord(
        method=method,
        target=target,
        commands=(command,),
        seed=seed,
        data=tuple(data),
        dialogues=len(dialogues),
        answer_tokens=sum(len(dialogue.answer_ids) for dialogue in dialogues),
        token_passes=token_passes,
        seconds=seconds,
        parameters=parameters,
        target_parameters=target_parameters,
        options=options,
        measured=measured,
    )


def write_record(record: TrainingRecord, folder: Path) -> None:
    """Write what `read_record` reads."""
    body = {"format": FORMAT, **asdict(record)}
    (folder / FILE).write_text(json.dumps(body, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_record(folder: Path) -> TrainingRecord:
    """The record in the folder of a drafter. Raises ConfigError that says what is wrong."""
    path = folder / FILE
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = body.pop("format", None)
        if found != FORMAT:
            raise ConfigError(f"{path} has format '{found}'; this version reads '{FORMAT}'.")
        data = tuple(DataFile(**entry) for entry in body["data"])
        return TrainingRecord(**body | {"data": data, "commands": tuple(body["commands"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no record of a training: {error}.") from error


def record_of_model(model: str | None) -> TrainingRecord | None:
    """The record beside the ``model`` of a drafter group, a folder or a shipped name; None where there is none.

    Raises ConfigError for a record that cannot be read.
    """
    if model is None:
        return None
    folder = Path(model).expanduser()
    if not folder.is_dir():
        with suppress(ConfigError):  # a name in the catalogue or on the hub
            folder = find_shipped("models", model)
    return read_record(folder) if (folder / FILE).is_file() else None
