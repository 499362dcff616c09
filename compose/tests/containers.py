"""What the tests of images and of compose.yaml share."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "target/compose-images"
"""Made by compose/test: one image a line."""


def podman(*arguments: str) -> str:
    """What podman prints."""
    done = subprocess.run(["podman", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def images() -> dict[str, str]:
    """The images that compose/test could build: by their last names."""
    return {image.rpartition("/")[2].partition(":")[0]: image for image in BUILT.read_text().split()}
