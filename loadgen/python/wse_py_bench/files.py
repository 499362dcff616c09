"""The checkout, and files that are there whole or not at all."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def put(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.part")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
