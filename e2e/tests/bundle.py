"""Reads a bundle from disk, as `ladder fetch` downloads it."""

import hashlib
import json
from pathlib import Path
from typing import Any


class Bundle:
    """The bundle of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self) -> Any:
        """The content of `run.json`."""
        return json.loads((self.folder / "run.json").read_text())

    def trials(self) -> list[Path]:
        """The folders of trials that have a result."""
        return sorted(result.parent for result in self.folder.glob("trials/**/result.json"))

    def valid(self) -> int:
        """The number of finished and valid trials."""
        return sum(entry["state"].get("validity", {}).get("state") == "valid" for entry in self.run()["trials"])

    def attempts(self) -> list[int]:
        """The number of attempts of each trial, in the order of tiers."""
        results = [read(trial / "result.json") for trial in self.trials()]
        return [result["attempt"] for result in sorted(results, key=lambda result: result["trial"]["tier"])]

    def timeline(self) -> list[Any]:
        """The entries of `timeline.jsonl`: what the operator did, in order."""
        return [json.loads(line) for line in (self.folder / "timeline.jsonl").read_text().splitlines()]

    def files(self) -> dict[str, str]:
        """The SHA-256 of each file by relative path."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def read(path: Path) -> Any:
    """The parsed content of a JSON file."""
    return json.loads(path.read_text())
