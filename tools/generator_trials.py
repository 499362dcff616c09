"""Runs one load generator against the echo of services/league/generators, each on a CPU of its own.

In a flood, the echo counts what reaches it, and the kernel what the generator's processes use, between the same two
moments: after a warm-up that is the same for all tools, so that neither a start nor a compiler is in the figure. At a
pace, the tool runs to its end, and its own report is compared with what the echo did.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import generator_reports
import generator_tools
from generator_tools import Generator, Load
from league_servers import ROOT
from process_cpu import cpu_seconds

ECHO = [".tools/league/picows/bin/python", "services/league/generators/echo/server.py"]
# A JVM on a busy machine needs some seconds until its first message.
START_SECONDS = 120.0
STOP_SECONDS = 15.0
# A closed loop at a pace takes longer than planned by what it waits for answers, and tools take seconds to end.
END_FACTOR, END_SECONDS = 3, 120.0
FLOOD, DELAY, FREEZE = "flood", "delay", "freeze"
SCENARIOS = (FLOOD, DELAY, FREEZE)


class EndedError(Exception):
    """A tool ended without its result, or took too long; the message has the last line that it printed."""


@dataclass(frozen=True)
class Settings:
    """What all trials of a run share."""

    processes: int
    """Fresh processes of each tool and scenario."""
    warm_up_seconds: float
    window_seconds: float
    paced_seconds: float
    flood_connections: int = 50
    paced_connections: int = 10
    pause_seconds: float = 0.05
    delay_ms: float = 20
    freeze_seconds: float = 1

    @property
    def paced(self) -> Load:
        return Load(self.paced_connections, self.paced_seconds, self.pause_seconds)

    @property
    def freeze_after_seconds(self) -> float:
        """From the first message until the freeze, which is in the middle of the window."""
        return (self.paced_seconds - self.freeze_seconds) / 2


FULL = Settings(processes=5, warm_up_seconds=10, window_seconds=10, paced_seconds=20)
QUICK = Settings(processes=1, warm_up_seconds=2, window_seconds=2, paced_seconds=4)


class Echo:
    """The echo server while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.port = int(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise EndedError("the echo ended; build it with: tools/generators.py build")
        return text

    def books(self) -> dict[str, Any]:
        """What it has seen so far."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.line())
        return found


@contextmanager
def echo(*options: str) -> Iterator[Echo]:
    """An echo on the first CPU that this process may use."""
    command = on_cpu(min(os.sched_getaffinity(0)), [*ECHO, *options])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Echo(process)
        finally:
            # It ends when its standard input closes, which leaving this block does; a frozen one can't.
            process.terminate()


@contextmanager
def started(generator: Generator, load: Load, port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A generator on the last CPU that this process may use, in a session of its own; what is left of it is ended."""
    command, environment = generator_tools.command(generator, load, port, folder)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            on_cpu(max(os.sched_getaffinity(0)), command),
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def on_cpu(cpu: int, command: Sequence[str]) -> list[str]:
    return ["taskset", "--cpu-list", str(cpu), *command]


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a generator and what it started. Some don't stop for a signal that asks; those are killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_SECONDS)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def run(generator: Generator, scenario: str, settings: Settings) -> dict[str, Any]:
    """What a trial found, or the reason why it found nothing, as `error`."""
    try:
        with tempfile.TemporaryDirectory(prefix=f"{generator.name}-") as folder:
            if scenario == FLOOD:
                return flood(generator, settings, Path(folder))
            return paced(generator, scenario, settings, Path(folder))
    except (EndedError, generator_reports.ReportError) as error:
        return {"error": str(error)}


def flood(generator: Generator, settings: Settings, folder: Path) -> dict[str, Any]:
    """Messages that the echo got, and CPU time that the generator used, in the same window."""
    load = Load(settings.flood_connections, settings.warm_up_seconds + settings.window_seconds)
    with echo() as server, started(generator, load, server.port, folder) as process:
        wait_for_message(server, process, folder)
        start_up = cpu_seconds(process.pid)
        time.sleep(settings.warm_up_seconds)
        before, used_before, begin = server.books()["messages"], cpu_seconds(process.pid), time.monotonic()
        time.sleep(settings.window_seconds)
        books, used_after, ended = server.books(), cpu_seconds(process.pid), time.monotonic()
        if process.poll() is not None:
            raise EndedError(f"it ended within the window: {last_line(folder)}")
    return {
        "messages": books["messages"] - before,
        "connections": books["connections"],
        "cpu_seconds": round(used_after - used_before, 3),
        "seconds": round(ended - begin, 3),
        "start_up_cpu_seconds": round(start_up, 3),
    }


def wait_for_message(server: Echo, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits until the first message reached the echo."""
    deadline = time.monotonic() + START_SECONDS
    while not server.books()["messages"]:
        if process.poll() is not None:
            raise EndedError(f"it ended with exit code {process.returncode} before a message: {last_line(folder)}")
        if time.monotonic() > deadline:
            raise EndedError(f"no message within {START_SECONDS:g} s: {last_line(folder)}")
        time.sleep(0.05)


def paced(generator: Generator, scenario: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """What the tool reports at a pace, beside what is true."""
    load = settings.paced
    options = ["--delay-ms", f"{settings.delay_ms:g}"]
    if scenario == FREEZE:
        after = ["--freeze-after-seconds", f"{settings.freeze_after_seconds:g}"]
        options = [*after, "--freeze-seconds", f"{settings.freeze_seconds:g}"]
    with echo(*options) as server, started(generator, load, server.port, folder) as process:
        try:
            process.wait(load.seconds * END_FACTOR + END_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise EndedError(f"it didn't end: {last_line(folder)}") from error
        books = server.books()
    try:
        report = generator_reports.read(generator.name, folder)
    except generator_reports.ReportError as error:
        raise EndedError(f"{error}: {last_line(folder)}") from error
    return {"served": books["messages"], **asdict(report), "true_ms": truth(scenario, settings, books)}


def truth(scenario: str, settings: Settings, books: dict[str, Any]) -> dict[str, float]:
    """The latencies of a client whose messages are due at the planned rate, in milliseconds: the delays that the echo
    noted, or what is left of a freeze when a message is due."""
    if scenario == DELAY:
        noted: dict[str, float] = books["delays_ms"]
        return noted
    frozen = books["frozen_seconds"]
    begin, load = settings.freeze_after_seconds, settings.paced
    due = [number * load.pause_seconds / load.connections for number in range(load.messages * load.connections)]
    waits = sorted(max(0.0, begin + frozen - at) if at >= begin else 0.0 for at in due)
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {name: waits[min(int(part * len(waits)), len(waits) - 1)] for name, part in at.items()}
    return {name: round(1000 * value, 3) for name, value in ({"mean": fmean(waits)} | found).items()}


def last_line(folder: Path) -> str:
    """The last line that a generator printed."""
    lines = (folder / "output").read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it printed nothing"
