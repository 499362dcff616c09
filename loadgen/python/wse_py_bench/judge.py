"""Has trials judged by `ladder judge`, by the same rules as every client (docs/METHODOLOGY.md, "Validity").

It reads a trial's folder (docs/FORMAT.md) and writes `result.json` there; this program has no rules of its own.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_format.schemas import ServiceFile, TrialFile, TrialResult, WorkerResult
from bench_format.wire import FormatError, decode, to_json

from .files import ROOT, write_atomically

BUILD_FOLDERS = ("target/release", "target/debug")
# Exit codes of `ladder judge` after which there is a result: the trial is valid, or invalid.
JUDGED_EXIT_CODES = (0, 2)


class JudgeError(Exception):
    """A trial could not be judged; the text says why."""


@dataclass(frozen=True)
class Judge:
    """Runs the program `ladder` to judge trials."""

    program: Path

    def judge(self, folder: Path) -> TrialResult:
        """Judges the trial in a folder; the result is returned and written there. Raises `JudgeError`."""
        command = [str(self.program), "judge", str(folder)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        path = folder / "result.json"
        # An older `ladder` without the subcommand also exits with 2, but writes no result.
        if process.returncode not in JUDGED_EXIT_CODES or not path.is_file():
            reason = process.stderr.strip() or f"it ended with {process.returncode}"
            raise JudgeError(f"{self.program} can't judge the trial: {reason}")
        try:
            return decode(TrialResult, json.loads(path.read_text()), path.name)
        except FormatError as error:
            raise JudgeError(f"{self.program} is of another version than this client: {error}") from error


def find_judge(checkout: Path = ROOT) -> Judge:
    """Finds `ladder`: a build of this checkout first, because both must know the same files, else one on PATH."""
    for name in (*(str(checkout / build / "ladder") for build in BUILD_FOLDERS), "ladder"):
        if program := shutil.which(name):
            return Judge(Path(program))
    raise JudgeError("there is no `ladder` to judge trials with; `cargo build --release -p operator` builds it")


def write_trial(folder: Path, trial: TrialFile, workers: Sequence[WorkerResult], service: ServiceFile) -> None:
    """Writes all files that a trial is judged by."""
    for worker in workers:
        write_atomically(folder / "workers" / f"{worker.worker}.json", to_json(worker))
    write_atomically(folder / "trial.json", to_json(trial))
    write_atomically(folder / "service.json", to_json(service))
