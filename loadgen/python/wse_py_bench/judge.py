"""What a trial is worth: `ladder judge` says it, by the same rules for every client (docs/METHODOLOGY.md, "Validity").

A trial's folder goes in (docs/FORMAT.md) and its `result.json` comes out; this program has no rule of its own.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_format.schemas import ServiceFile, TrialFile, TrialResult, WorkerResult
from bench_format.wire import FormatError, decode, to_json

from .files import ROOT, put

BUILDS = ("target/release", "target/debug")
# How `ladder judge` ends: the trial is valid, or it is not.
JUDGED = (0, 2)


class JudgeError(Exception):
    """A trial that nobody judges; the text says why."""


@dataclass(frozen=True)
class Judge:
    """The program `ladder`."""

    program: Path

    def judge(self, folder: Path) -> TrialResult:
        """The result of the trial in a folder, which is also left there."""
        command = [str(self.program), "judge", str(folder)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        path = folder / "result.json"
        # A `ladder` that doesn't know the word ends with 2 as well, and leaves nothing.
        if ended.returncode not in JUDGED or not path.is_file():
            words = ended.stderr.strip() or f"it ended with {ended.returncode}"
            raise JudgeError(f"{self.program} can't judge the trial: {words}")
        try:
            return decode(TrialResult, json.loads(path.read_text()), path.name)
        except FormatError as error:
            raise JudgeError(f"{self.program} is of another version than this client: {error}") from error


def find_judge(checkout: Path = ROOT) -> Judge:
    """What the checkout built goes before what is on PATH, because both sides have to know the same files."""
    for name in (*(str(checkout / build / "ladder") for build in BUILDS), "ladder"):
        if program := shutil.which(name):
            return Judge(Path(program))
    raise JudgeError("there is no `ladder` to judge trials with; `cargo build --release -p operator` builds it")


def write_trial(folder: Path, trial: TrialFile, workers: Sequence[WorkerResult], service: ServiceFile) -> None:
    """Everything that a trial is judged by."""
    for worker in workers:
        put(folder / "workers" / f"{worker.worker}.json", to_json(worker))
    put(folder / "trial.json", to_json(trial))
    put(folder / "service.json", to_json(service))
