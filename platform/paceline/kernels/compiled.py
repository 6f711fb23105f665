"""Builds a C source of this package into a shared library, once per machine, and loads it.

Each kernel has a readable torch version beside it, which serves where no compiler is found and is what
the tests compare with. Both need not have the same bits: `kernels_in_use` is part of the fingerprint.
"""

import ctypes
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from paceline.config.cache import cache_dir

logger = logging.getLogger(__name__)

_COMPILERS = ("cc", "gcc", "clang")
# Sums are written out lane by lane, so that the order of additions does not depend on the vector width; what is
# rounded once and what twice is up to the source, not to the compiler.
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC", "-std=gnu11")
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_COMPILE_TIMEOUT_S = 600  # it takes a quarter of a minute, or several where many processes share few cores


@lru_cache
def load_kernel(name: str) -> ctypes.CDLL | None:
    """The library made from ``<name>.c``; None where it cannot be compiled, with the reason in the log.

    ``-fopenmp`` resolves to the OpenMP runtime that torch has loaded, so both share one pool of threads:
    import torch first.
    """
    source = Path(__file__).with_name(f"{name}.c")
    compiler = next((path for candidate in _COMPILERS if (path := shutil.which(candidate))), None)
    if compiler is None:
        logger.warning("no C compiler was found: %s runs in its slower torch form; install gcc or clang", name)
        return None
    library = _library_path(source, compiler)
    try:
        if not library.exists():
            _compile_once(compiler, source, library)
        return ctypes.CDLL(str(library))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or error
        logger.warning("%s could not be compiled or loaded, and runs in its slower torch form: %s", source.name, detail)
        return None


def kernels_in_use(*names: str) -> str:
    """``compiled`` if every kernel of ``names`` is, else ``torch``."""
    return "compiled" if all(load_kernel(name) is not None for name in names) else "torch"


def _library_path(source: Path, compiler: str) -> Path:
    """Named after everything that decides what is in it."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    key = hashlib.sha256("\0".join((*_texts(source), *_FLAGS, version, _cpu_features())).encode())
    return cache_dir() / "kernels" / f"{source.stem}-{key.hexdigest()[:16]}.so"


def _texts(source: Path) -> Iterator[str]:
    """A source and what it includes from its own folder."""
    text = source.read_text("utf-8")
    yield text
    for name in _INCLUDE.findall(text):
        yield from _texts(source.with_name(name))


def _cpu_features() -> str:
    """What ``-march=native`` looks at: a cache folder may be shared between unequal machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return os.uname().machine
    return next((line for line in lines if line.startswith(("flags", "Features"))), os.uname().machine)


def _compile_once(compiler: str, source: Path, library: Path) -> None:
    """Compile unless a process that started at the same time has done so meanwhile."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(library.with_suffix(".lock")):
        if not library.exists():
            _compile(compiler, source, library)


def _compile(compiler: str, source: Path, library: Path) -> None:
    """Compile beside the final place and rename, so that a process that starts meanwhile sees all or nothing."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder) / library.name
        subprocess.run(  # noqa: S603 - a compiler from PATH over a source of this package
            [compiler, *_FLAGS, str(source), "-o", str(built), "-lm"],
            check=True,
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
        )
        built.replace(library)
