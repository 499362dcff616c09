"""Helpers shared by the tests of images and of compose.yaml."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "target/compose-images"
"""Written by compose/test: one image per line."""


def podman(*arguments: str) -> str:
    """Runs podman and returns its standard output."""
    completed = subprocess.run(["podman", *arguments], check=True, capture_output=True, text=True)
    return completed.stdout.strip()


def images() -> dict[str, str]:
    """The images that compose/test built, keyed by name without registry and tag."""
    return {image.rpartition("/")[2].partition(":")[0]: image for image in BUILT.read_text().split()}
