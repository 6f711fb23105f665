"""Fetches a model from a Hugging Face hub, safetensors and text files only."""

from pathlib import Path

import httpx
from huggingface_hub import snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from paceline.errors import ModelUnavailableError

_ALLOWED_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
# Some repositories hold a second copy of the weights for other software.
_IGNORED_FILES = ["original/*", "onnx/*", "*/*.safetensors"]


def fetch_from_hub(hub_id: str, revision: str | None = None) -> Path:
    """Folder of ``hub_id`` (``org/name``) at ``revision``; from the hub's own cache where it has it.

    The token comes from ``HF_TOKEN`` or the hub's login. Raises ModelUnavailableError.
    """
    try:
        folder = snapshot_download(
            hub_id, revision=revision, allow_patterns=_ALLOWED_FILES, ignore_patterns=_IGNORED_FILES
        )
    except GatedRepoError as error:
        raise ModelUnavailableError(
            f"The model '{hub_id}' is gated. Accept its terms on the hub and set HF_TOKEN to a token that may read it."
        ) from error
    except RevisionNotFoundError as error:
        raise ModelUnavailableError(f"The model '{hub_id}' has no revision '{revision}'.") from error
    except RepositoryNotFoundError as error:
        raise ModelUnavailableError(
            f"The hub has no model '{hub_id}', or it is private. Check the id, or set HF_TOKEN."
        ) from error
    except HFValidationError as error:
        raise ModelUnavailableError(f"'{hub_id}' is not a hub id of the form org/name.") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, httpx.HTTPError, OSError) as error:
        raise ModelUnavailableError(
            f"The hub could not be reached for '{hub_id}', and the model is not cached ({_first_line(error)}). "
            "Check the network, or pass a folder that holds the model."
        ) from error
    return Path(folder)


def cached_from_hub(hub_id: str, revision: str | None = None) -> Path | None:
    """Folder of ``hub_id`` at ``revision`` in the hub's own cache; None where it is not there."""
    try:
        found = try_to_load_from_cache(hub_id, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
