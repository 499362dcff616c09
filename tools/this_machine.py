"""What the machine is that a figure was measured on."""

from __future__ import annotations

import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")


def cpu_model(file: Path = CPU_INFO) -> str:
    """The CPU's model as the kernel names it, as `ladder` writes it into a bundle; else the architecture."""
    lines = file.read_text().splitlines() if file.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
