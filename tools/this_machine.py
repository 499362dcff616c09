"""What the machine is that a figure was measured on."""

from __future__ import annotations

from pathlib import Path


def cpu_model() -> str:
    """The CPU's model as the kernel names it, and as `ladder` writes it into a bundle; empty where it names none."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
