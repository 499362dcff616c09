"""Makes the package and the fixtures importable wherever pytest is started from."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
