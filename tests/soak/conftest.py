"""Makes the package importable by its name, and sets what Ray reads at its import."""

import sys
from pathlib import Path

from paceline_serve.local_ray import set_ray_environment

set_ray_environment()
sys.path.insert(0, str(Path(__file__).parent.parent))
