"""The path of the checkout, and atomic writing of files."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def write_atomically(path: Path, text: str) -> None:
    """Writes a file atomically: a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.part")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
