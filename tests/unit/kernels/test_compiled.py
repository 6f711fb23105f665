"""Kernels are compiled where a compiler is, and their absence is never an error."""

import time
from concurrent.futures import ThreadPoolExecutor

from paceline.kernels import compiled


def test_without_a_compiler_the_torch_form_serves(monkeypatch, caplog):
    """The log says what to install."""
    monkeypatch.setattr(compiled.shutil, "which", lambda _: None)

    assert compiled.load_kernel.__wrapped__("paged_attention") is None
    assert "install gcc or clang" in caplog.text


def test_a_source_that_does_not_compile_is_reported(monkeypatch, caplog, tmp_path):
    """The compiler's own words are in the log."""
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    (tmp_path / "broken.c").write_text("int f( {")

    assert compiled.load_kernel.__wrapped__("broken") is None
    assert "error:" in caplog.text


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, caplog, tmp_path):
    """The torch form serves, and the log names the folder."""
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }")
    (tmp_path / "file").touch()
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "file"))

    assert compiled.load_kernel.__wrapped__("answer") is None
    assert str(tmp_path / "file") in caplog.text


def test_a_library_that_cannot_be_loaded_is_no_error(monkeypatch, caplog, tmp_path):
    """As in a cache folder from which nothing may be executed."""
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }")
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))

    def refuse(_):
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(compiled.ctypes, "CDLL", refuse)

    assert compiled.load_kernel.__wrapped__("answer") is None
    assert "failed to map segment" in caplog.text


def test_a_kernel_is_compiled_once(monkeypatch, tmp_path):
    """The second load takes the file that the first one made, and the function is callable."""
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }")
    assert compiled.load_kernel.__wrapped__("answer").answer() == 42
    monkeypatch.setattr(compiled, "_compile", None)  # a second compilation would fail

    assert compiled.load_kernel.__wrapped__("answer").answer() == 42


def test_a_changed_source_is_another_library(monkeypatch, tmp_path):
    """Nothing stale is ever loaded."""
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    for value in (1, 2):
        (tmp_path / "answer.c").write_text(f"int answer(void) {{ return {value}; }}")
        assert compiled.load_kernel.__wrapped__("answer").answer() == value


def test_a_changed_include_is_another_library(monkeypatch, tmp_path):
    """What a source includes from its own folder is part of it."""
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    (tmp_path / "answer.c").write_text('#include "value.h"\nint answer(void) { return VALUE; }')
    for value in (1, 2):
        (tmp_path / "value.h").write_text(f"#define VALUE {value}")
        assert compiled.load_kernel.__wrapped__("answer").answer() == value


def test_processes_that_start_together_compile_once(monkeypatch, tmp_path):
    """All others wait for the first and load what it made."""
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }")
    compilations = []
    compile_really = compiled._compile
    monkeypatch.setattr(
        compiled, "_compile", lambda *args: (compilations.append(args), time.sleep(0.2), compile_really(*args))
    )

    with ThreadPoolExecutor(4) as pool:
        libraries = list(pool.map(lambda _: compiled.load_kernel.__wrapped__("answer"), range(4)))

    assert [library.answer() for library in libraries] == [42] * 4
    assert len(compilations) == 1
