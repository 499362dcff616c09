"""Makes the package, its fixtures and the tools that use it importable, independent of pytest's working directory."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]
