"""Loads the golden messages of `services/testdata`."""

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[2] / "testdata" / "stt-messages.json"


def golden(name: str) -> list[Any]:
    """Returns the entries of the list `name`: `client`, `inference`, `partial` or `error`."""
    entries: list[Any] = json.loads(_FILE.read_text(encoding="utf-8"))[name]
    return entries
