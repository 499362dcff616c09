"""`reports`: makes the reports of a cluster's bundles, in a container beside the operator that writes them.

It works only while the operator climbs no run, because a report takes CPU that a measurement on the same node would
miss. Bundles are only read. Reports are in a folder of their own, from which the operator serves each as
`/results/<run>/report/`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

# States of the operator in which no run is climbed, or about to be.
_RESTING = ("idle", "finished")
# States of a run whose bundle doesn't change any more, unless its failed trials are measured again.
_ENDED = ("finished", "failed", "superseded")
# Seconds between two looks at the bundles, between two looks at the operator while a report is made, and until a report
# that failed is tried again.
_INTERVAL = 10.0
_GLANCE = 1.0
_RETRY = 600.0
# Seconds for an answer of the operator, which runs in the same pod.
_TIMEOUT = 5.0
# Folder in which a report grows; hidden, so that half of one is never served.
_GROWING = ".growing"


@dataclass
class Keeper:
    """Makes the reports that are missing, one at a time."""

    results: Path
    """The folder of the bundles."""
    reports: Path
    """The folder of the reports, each in a folder with the name of its bundle's."""
    operator: str
    """The operator's web port, `http://host:port`."""
    later: dict[str, float] = field(default_factory=dict)
    """When to try again those that failed, by run, on the monotonic clock."""

    def pass_over(self) -> list[str]:
        """Makes each missing report, and removes those whose bundle is gone. Returns the runs that have a new one."""
        if not self.is_resting():
            return []
        self._remove_strays()
        made = []
        for bundle in self._without_report():
            if self._make(bundle):
                made.append(bundle.name)
            elif not self.is_resting():
                break
            else:
                self.later[bundle.name] = time.monotonic() + _RETRY
        return made

    def is_resting(self) -> bool:
        """Whether the operator answers, and climbs no run."""
        try:
            with urllib.request.urlopen(f"{self.operator}/api/status", timeout=_TIMEOUT) as reply:
                return json.load(reply).get("state") in _RESTING
        except (OSError, ValueError):
            return False

    def _without_report(self) -> list[Path]:
        """The bundles of ended runs whose report is missing or older than their `run.json`, the newest first."""
        now = time.monotonic()
        due = (folder for folder in self.results.iterdir() if self.later.get(folder.name, now) <= now)
        wanted = [folder for folder in due if self._is_wanted(folder)]
        return sorted(wanted, key=lambda folder: (folder / "run.json").stat().st_mtime, reverse=True)

    def _is_wanted(self, bundle: Path) -> bool:
        run = bundle / "run.json"
        if bundle.name.startswith(".") or not run.is_file():
            return False
        page = self.reports / bundle.name / "report.html"
        if page.is_file() and page.stat().st_mtime >= run.stat().st_mtime:
            return False
        try:
            return json.loads(run.read_bytes()).get("state") in _ENDED
        except (OSError, ValueError):
            return False

    def _make(self, bundle: Path) -> bool:
        """Makes a report, unless the operator begins to climb meanwhile; returns whether it is there."""
        growing = self.reports / _GROWING
        with suppress(FileNotFoundError):
            shutil.rmtree(growing)
        command = [sys.executable, "-m", __package__ or "", str(bundle), "--output", str(growing)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as making:
            try:
                while not _has_ended(making):
                    if not self.is_resting():
                        return False
            finally:
                making.kill()
        if making.returncode != 0:
            print(f"no report of {bundle.name}: exit code {making.returncode}", file=sys.stderr, flush=True)
            return False
        target = self.reports / bundle.name
        with suppress(FileNotFoundError):
            shutil.rmtree(target)
        growing.rename(target)
        print(f"made the report of {bundle.name}", file=sys.stderr, flush=True)
        return True

    def _remove_strays(self) -> None:
        for report in self.reports.iterdir():
            if report.name != _GROWING and not (self.results / report.name).is_dir():
                shutil.rmtree(report, ignore_errors=True)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_GLANCE)
    except subprocess.TimeoutExpired:
        return False
    return True


def main(arguments: Sequence[str]) -> int:
    """Makes reports until SIGTERM ends it; then the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m ws_ladder_analysis reports", description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder of the bundles; nothing is written to it")
    parser.add_argument("--reports", type=Path, required=True, help="folder for the reports")
    parser.add_argument("--operator", required=True, metavar="URL", help="the operator's web port, http://host:port")
    options = parser.parse_args(arguments)
    # The first process of a container ignores SIGTERM unless it asks for it.
    signal.signal(signal.SIGTERM, _exit)
    keeper = Keeper(options.results, options.reports, options.operator)
    while True:
        try:
            keeper.pass_over()
        except OSError as error:
            # A full volume, or one that can't be read for a while.
            print(f"no reports for now: {error}", file=sys.stderr, flush=True)
        time.sleep(_INTERVAL)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)
