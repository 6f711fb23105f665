import importlib
import pkgutil
from collections import Counter
from pathlib import Path

from grpc_tools import protoc

import paceline.v1
from repository import GENERATED, ROOT


def test_generated_code_is_current(tmp_path):
    """What the compiler makes of protos/ is what is committed in platform/paceline/v1 (`make protos`)."""
    sources = sorted(str(path.relative_to(ROOT / "protos")) for path in (ROOT / "protos").rglob("*.proto"))
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]

    assert protoc.main(["protoc", f"--proto_path={ROOT / 'protos'}", *outputs, *sources]) == 0

    assert _contents(tmp_path / "paceline" / "v1") == _contents(GENERATED)


def test_method_names_are_unique_over_all_services():
    """Ray Serve's gRPC proxy finds a method by its bare name, so no two services may share one."""
    methods = Counter(
        method.name
        for module in pkgutil.iter_modules(paceline.v1.__path__)
        if module.name.endswith("_pb2")
        for service in importlib.import_module(f"paceline.v1.{module.name}").DESCRIPTOR.services_by_name.values()
        for method in service.methods
    )

    assert methods
    assert [name for name, count in methods.items() if count > 1] == []


def _contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.iterdir() if path.suffix in {".py", ".pyi"} and path.name != "__init__.py")
    return {path.name: path.read_text() for path in files}
