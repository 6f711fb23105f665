"""A cheap fingerprint of a model folder's weights."""

import hashlib
from pathlib import Path

_SAMPLES = 64
_SAMPLE_BYTES = 4096


def weights_version(folder: Path, num_layers: int | None = None) -> str:
    """First 16 hex digits of a SHA-256 over config, and size, header and samples of each weight file.

    Reads about 256 KiB a file, whatever its size. Training changes nearly every weight, so samples
    tell two trainings apart; it is no proof against someone who edits single weights.
    """
    digest = hashlib.sha256(f"layers={num_layers}".encode())
    digest.update((folder / "config.json").read_bytes())
    for file in sorted(folder.glob("*.safetensors")):
        _update_from(digest, file)
    return digest.hexdigest()[:16]


def _update_from(digest: "hashlib._Hash", file: Path) -> None:
    size = file.stat().st_size
    digest.update(f"{file.name}:{size}".encode())
    with file.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")  # safetensors: u64 length, then JSON
        digest.update(stream.read(min(header_bytes, size)))
        for sample in range(_SAMPLES):
            stream.seek(size * sample // _SAMPLES)
            digest.update(stream.read(_SAMPLE_BYTES))
