"""`ladder run` as a process that is disturbed: its processes by name, its trials, and whether anything was lost."""

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from hostile.target import BIN, CHECKOUT, descriptors_of, memory_of, until

PLAN = CHECKOUT / "hostile" / "plan.yaml"
RUN_ID = "hostile"
LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""


class Climb:
    """A `ladder run` in the background, in a session of its own."""

    def __init__(self, results: Path, *options: str, **environment: str) -> None:
        self.results = results
        self.bundle = results / RUN_ID
        self.output = results.parent / f"{results.name}.output"
        skipped = ("--no-rest", "--no-report", "--no-conformance")
        command = (str(BIN / "ladder"), "run", *options, *skipped, "--results", str(results))
        with self.output.open("a") as output:
            self.process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @classmethod
    def begin(cls, results: Path, **environment: str) -> "Climb":
        """Starts `hostile/plan.yaml` as a new run."""
        return cls(results, str(PLAN), "--run-id", RUN_ID, **environment)

    @classmethod
    def resume(cls, results: Path) -> "Climb":
        """Goes on with a run that was interrupted."""
        return cls(results, "--resume", RUN_ID)

    def run_file(self) -> dict[str, Any]:
        """The content of run.json; empty before it exists."""
        try:
            content: dict[str, Any] = json.loads((self.bundle / "run.json").read_text())
        except FileNotFoundError:
            return {}
        return content

    def states(self) -> list[str]:
        """The state of each trial in the plan's order."""
        return [trial["state"]["state"] for trial in self.run_file().get("trials", [])]

    def finished(self) -> int:
        """The number of trials that have a result."""
        return self.states().count("finished")

    def family(self) -> dict[str, list[int]]:
        """Ids of the processes that it started, by the program's file name."""
        found: dict[str, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == self.process.pid and fields[0] != "Z":
                name = Path(os.fsdecode(command[0])).name
                if name.startswith("python") and len(command) > 1:
                    name = Path(os.fsdecode(command[1])).name
                found.setdefault(name, []).append(int(entry.name))
        return found

    def coordinator(self) -> tuple[str, int]:
        """Address of the coordinator, the only port on which ladder itself listens."""
        own = {str(file.readlink()) for file in Path(f"/proc/{self.process.pid}/fd").iterdir() if file.is_symlink()}
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in own:
                return "127.0.0.1", int(fields[1].partition(":")[2], 16)
        raise LookupError(f"ladder doesn't listen: {self.printed()}")

    def descriptors(self) -> int:
        """The number of open descriptors of ladder itself; 0 after its end."""
        return descriptors_of(self.process.pid)

    def memory(self) -> float:
        """Resident memory of ladder itself in MiB; 0 after its end."""
        return memory_of(self.process.pid)

    def wait(self, seconds: float = 120) -> int:
        """Waits for its end; returns the exit code."""
        return self.process.wait(seconds)

    def printed(self) -> str:
        """What it has printed."""
        return self.output.read_text()

    def is_under_way(self) -> bool:
        """Whether it runs trials now, or has ended already."""
        return self.process.poll() is not None or bool(self.family())

    def kill(self) -> None:
        """Kills ladder itself and nothing else."""
        self.process.kill()
        self.process.wait()

    def leaves_nothing_running(self) -> None:
        """Waits until no process of its session is left."""
        until(lambda: not self.family(), f"all processes of ladder have ended: {self.family()}")

    def clean(self) -> None:
        """Kills what is left, for the end of a test."""
        for pids in self.family().values():
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.kill()


def finished_files(bundle: Path) -> dict[str, str]:
    """A digest of each file of each trial that has a result, by path."""
    found = {}
    for result in sorted(bundle.glob("trials/**/result.json")):
        for file in sorted(result.parent.rglob("*")):
            if file.is_file():
                found[str(file.relative_to(bundle))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def no_file_changed(before: dict[str, str], after: dict[str, str]) -> None:
    """Asserts that what was finished before is there, byte by byte."""
    changed = [path for path, digest in before.items() if after.get(path) != digest]
    assert not changed, f"finished before, and changed or lost: {changed}"
