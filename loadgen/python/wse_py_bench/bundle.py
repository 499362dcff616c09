"""Writes a bundle (docs/FORMAT.md) with plan and results, so that the analysis can report it like one of `ladder`."""

import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench_format.meaning import trial_name
from bench_format.schemas import SCHEMA, Thresholds, TrialId, TrialResult
from bench_format.wire import to_json, to_wire

from . import __version__
from .cli import Options
from .files import ROOT, write_atomically
from .machine import environment
from .profiles import Ladder


@dataclass
class Bundle:
    """A bundle's folder; each trial is added when it ends."""

    folder: Path
    options: Options
    service: str
    service_version: str
    service_cpus: frozenset[int]
    started_at: str = field(default_factory=lambda: _now())
    ladders: list[Any] = field(default_factory=list)
    trials: list[Any] = field(default_factory=list)

    def folder_of(self, trial: TrialId) -> Path:
        """The folder of a trial's files."""
        return self.folder / "trials" / trial_name(trial)

    def add(self, ladder: Ladder, result: TrialResult) -> None:
        """Adds a finished trial to `run.json`; its files must be in its folder already."""
        state = {"state": "finished", "validity": to_wire(result.validity), "passed": None}
        self._add(ladder, result.trial, state)

    def add_failed(self, ladder: Ladder, trial: TrialId, reason: str) -> None:
        """Adds a failed trial to `run.json`, with the reason why it has no result."""
        self._add(ladder, trial, {"state": "failed", "reason": reason})

    def finish(self) -> None:
        """Marks the run as finished in `run.json`."""
        self._write("finished", _now())

    def _add(self, ladder: Ladder, trial: TrialId, state: dict[str, Any]) -> None:
        self.trials.append({"trial": to_wire(trial), "state": state})
        # One ladder per tier, because the rate may depend on the tier.
        self.ladders.append(
            {
                "workload": ladder.workload,
                "variant": ladder.variant,
                "tiers": [trial.tier],
                "load": to_wire(ladder.load(trial.tier)),
                "message": to_wire(ladder.message),
                "warmup_seconds": ladder.warmup_seconds,
                "window_seconds": ladder.window_seconds,
            }
        )
        self._write("running", None)

    def _write(self, state: str, finished_at: str | None) -> None:
        options = self.options
        plan = {
            "schema": SCHEMA,
            "name": f"py-bench-{options.profile}",
            "why": "What a Python application gets out of the service through websockets.",
            "seed": 1,
            "services": [self.service],
            "workers": options.workers,
            "warmup_seconds": options.warmup,
            "window_seconds": options.duration,
            "drain_seconds": options.drain,
            "validity": to_wire(Thresholds()),
            "ladders": self.ladders,
        }
        programs = {
            "wse-py-bench": __version__,
            "python": platform.python_version(),
            "websockets": version("websockets"),
            self.service: self.service_version,
        }
        roles = {"service": self.service_cpus, "worker": options.cpus or os.sched_getaffinity(0)}
        run = {
            "schema": SCHEMA,
            "id": self.folder.name,
            "started_at": self.started_at,
            "finished_at": finished_at,
            "state": state,
            "plan": plan,
            "command": command(options),
            "version": __version__,
            "commit": _commit(),
            "versions": programs,
            "machines": [to_wire(environment())],
            "cpu_roles": {role: ",".join(map(str, sorted(cpus))) for role, cpus in roles.items()},
            "trials": self.trials,
        }
        write_atomically(self.folder / "run.json", to_json(run))


def command(options: Options, *more: str) -> str:
    """The command line, extended by `more`."""
    program = f"loadgen/python/bench_{options.profile.replace('-', '_')}.py"
    return " ".join([".venv/bin/python", program, *options.arguments, *more])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _commit() -> str:
    """The commit of the checkout, marked when it has changes; empty outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
