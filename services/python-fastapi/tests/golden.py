"""The golden messages of `services/testdata`."""

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[2] / "testdata" / "stt-messages.json"


def golden(name: str) -> list[Any]:
    """The entries of one list of the golden messages."""
    entries: list[Any] = json.loads(_FILE.read_text(encoding="utf-8"))[name]
    return entries
