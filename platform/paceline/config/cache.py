"""Where files that can be made again are kept."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """``PACELINE_CACHE``, else ``paceline`` in the user's cache folder. Not created here."""
    explicit = os.environ.get("PACELINE_CACHE")
    if explicit:
        return Path(explicit).expanduser()
    user_cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(user_cache).expanduser() / "paceline"
