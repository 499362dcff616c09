"""A bundle as it lies on disk: what `ladder fetch` brought."""

import hashlib
import json
from pathlib import Path
from typing import Any


class Bundle:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self) -> Any:
        """`run.json`."""
        return json.loads((self.folder / "run.json").read_text())

    def trials(self) -> list[Path]:
        """The folders of trials that have a result."""
        return sorted(result.parent for result in self.folder.glob("trials/**/result.json"))

    def valid(self) -> int:
        """How many trials are finished and valid."""
        return sum(entry["state"].get("validity", {}).get("state") == "valid" for entry in self.run()["trials"])

    def attempts(self) -> list[int]:
        """How often each trial was begun, tier by tier."""
        results = [read(trial / "result.json") for trial in self.trials()]
        return [result["attempt"] for result in sorted(results, key=lambda result: result["trial"]["tier"])]

    def files(self) -> dict[str, str]:
        """Every file with its SHA-256."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def read(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text())
