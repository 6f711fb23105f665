from pathlib import Path

from paceline.config.cache import cache_dir


def test_an_explicit_folder_wins(monkeypatch):
    """PACELINE_CACHE names the folder itself; ~ is the user's home."""
    monkeypatch.setenv("PACELINE_CACHE", "~/models")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")

    assert cache_dir() == Path("~/models").expanduser()


def test_the_user_cache_is_the_default(monkeypatch):
    """Without it, the folder lies in XDG_CACHE_HOME, else in ~/.cache."""
    monkeypatch.delenv("PACELINE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_dir() == Path("/somewhere/paceline")

    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path("~/.cache/paceline").expanduser()
