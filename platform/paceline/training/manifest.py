"""Says what is in a packed file, so that anybody can prove that a text is not, without reading the file."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.training.corpus import CorpusSize, Dialogue, UserTurn
from paceline.training.exclusion import Exclusion, normalised

FORMAT = "paceline-manifest-1"
SUFFIX = ".manifest.json"
_HASH_DIGITS = 16  # 64 bits: no chance meeting among millions of turns


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a packed file holds."""

    model: str  # that wrote the answers
    vocabulary: str  # fingerprint
    sha256: str  # of the packed file
    num_bytes: int
    size: CorpusSize
    turns: tuple[str, ...]  # hash of each different user turn, sorted

    def holds(self, text: str) -> bool:
        """Whether ``text`` is one of the user turns. Case, punctuation and spaces make no difference."""
        return turn_hash(text) in self.turns


def make_manifest(
    dialogues: Sequence[Dialogue], packed: bytes, *, model: str, vocabulary: str, user_turn: UserTurn
) -> Manifest:
    """The manifest of ``packed``, which holds ``dialogues``."""
    return Manifest(
        model=model,
        vocabulary=vocabulary,
        sha256=hashlib.sha256(packed).hexdigest(),
        num_bytes=len(packed),
        size=CorpusSize.of(dialogues),
        turns=tuple(sorted({turn_hash(user_turn.of(dialogue)) for dialogue in dialogues})),
    )


def without_excluded(dialogues: Sequence[Dialogue], user_turn: UserTurn, exclusion: Exclusion) -> list[Dialogue]:
    """The dialogues whose question neither is nor contains an excluded text."""
    return [dialogue for dialogue in dialogues if not exclusion.matches(user_turn.of(dialogue))]


def turn_hash(text: str) -> str:
    """The first 16 hexadecimal digits of SHA-256 over the words of ``text`` in lower case, parted by one space."""
    return hashlib.sha256(normalised(text).encode()).hexdigest()[:_HASH_DIGITS]


def manifest_path(packed: Path) -> Path:
    """Where the manifest of a packed file lies: beside it."""
    return packed.with_name(packed.name + SUFFIX)


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write what `read_manifest` reads."""
    path.write_text(json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n", encoding="utf-8")


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises ConfigError that says what is wrong."""
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = body.pop("format", None)
        if found != FORMAT:
            raise ConfigError(f"{path} has format '{found}'; this version reads '{FORMAT}'.")
        return Manifest(**body | {"size": CorpusSize(**body["size"]), "turns": tuple(body["turns"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no manifest of `paceline train pack`: {error}.") from error
