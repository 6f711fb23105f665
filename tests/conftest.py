"""Makes the fixtures importable by name, and keeps idle arithmetic threads from spinning on shared cores."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault(
    "GOMP_SPINCOUNT", "10000"
)  # some microseconds: saves a sixth of a pass, costs little when crowded
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
