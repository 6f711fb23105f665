import ast
import re
from pathlib import Path

import pytest

from repository import PACKAGES, ROOT, source_files, text_files

_MAX_LINES = 400
_MAX_FUNCTION_LINES = 60
# Written in two parts so that this file does not match itself.
_LEFT_OPEN = re.compile("TO" + "DO|FIX" + "ME|NotImplemented" + "Error|X" + "XX")
_MACHINE = re.compile(
    r"(?<![\w.])/(?:ro"
    "ot|ho"
    r"me|Us"
    "ers|wo"
    "rk|op"
    "t)/|extra-index"
    r"-url|find-links\s|artifac"
    "tory|dev"
    "pi"
)


def _relative(paths) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def test_platform_itself_holds_no_module():
    """A module directly in platform/ would shadow the standard library's `platform`."""
    assert _relative((ROOT / "platform").glob("*.py")) == []


def test_no_module_is_named_after_nothing():
    """Modules are named after what they do: no utils, helpers, misc or common."""
    vague = {"utils", "util", "helpers", "misc", "common"}

    assert _relative(path for path in source_files() if path.stem in vague) == []


def test_modules_stay_short():
    """No module has more than 400 lines."""
    long = [path for path in source_files() if len(path.read_text().splitlines()) > _MAX_LINES]

    assert _relative(long) == []


def test_functions_fit_a_screen():
    """No function has more than 60 lines."""
    long = []
    for path in source_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > _MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.name} has {lines} lines")

    assert long == []


def _mirrored_kinds() -> list[Path]:
    return [ROOT / "tests" / kind for kind in ("unit", "contract", "statistical", "equivalence", "integration")]


@pytest.mark.parametrize(
    ("pattern", "what"), [(_LEFT_OPEN, "work left open"), (_MACHINE, "one machine's paths or hosts")]
)
def test_files_hold_neither_open_work_nor_one_machines_paths(pattern, what):
    """Nothing is left open in code or docs, and nothing depends on the machine that it was written on."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == [], what


def test_test_folders_mirror_the_source():
    """Every folder under tests/<kind>/ is named after a folder of the source, so none is left behind by a move."""
    known = {
        path.relative_to(package).as_posix()
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_dir() and path.name != "__pycache__"
    }
    stray = [
        path
        for kind in _mirrored_kinds()
        for path in kind.rglob("*")
        if path.is_dir()
        and path.name != "__pycache__"
        and any(path.rglob("*.py"))
        and path.relative_to(kind).as_posix() not in known
    ]

    assert _relative(stray) == []


def test_every_package_has_tests():
    """Each package with code of its own has a test folder of the same name, of one kind or another."""
    tested = {
        path.parent.relative_to(kind).parts[0] for kind in _mirrored_kinds() for path in kind.glob("*/**/test_*.py")
    }
    packages = {
        path.relative_to(PACKAGES[0]).parts[0]
        for path in source_files()
        if path.name != "__init__.py" and PACKAGES[0] in path.parent.parents
    }

    assert packages - tested == set()


def test_shipped_config_files_are_listed_by_name():
    """Config names are lower-case words with hyphens, so that `paceline serve NAME` reads well."""
    names = [path.name for path in (ROOT / "deployments" / "configs").iterdir()]

    assert names
    assert [name for name in names if not re.fullmatch(r"[a-z0-9-]+\.yaml", name)] == []
