"""Makes the fixtures importable by name, keeps idle arithmetic threads from spinning, shares tests out to workers."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault(
    "GOMP_SPINCOUNT", "10000"
)  # some microseconds: saves a sixth of a pass, costs little when crowded
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several workers share the tests: one gets all that start a Ray, the others a file at a time."""
    for item in items:
        group = "ray" if item.get_closest_marker("serve") else item.location[0]
        item.add_marker(pytest.mark.xdist_group(group))
