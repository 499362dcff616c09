"""The worker processes of a trial: they are forked, open their connections, and start at a common time.

The parent generates no load itself, so that it can read the service's counters on time.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any

from bench_format.schemas import WorkerResult

from .clock import NS_PER_MS, NS_PER_SECOND, monotonic_ns
from .worker import Assignment, serve

# Time from "all are ready" to the start: enough to wake and notify every worker.
START_IN_NS = 50 * NS_PER_MS
START_PER_WORKER_NS = NS_PER_MS // 2
# Longest wait for a worker beyond the time of its assignment, in nanoseconds.
GRACE_NS = 60 * NS_PER_SECOND


class WorkerError(Exception):
    """A worker failed; the text says which one and why."""


@dataclass(frozen=True)
class TrialObserver:
    """Callbacks of the parent during a trial."""

    # Called when all are ready: the start in nanoseconds of the monotonic clock, and the number of open connections.
    started: Callable[[int, int], None]
    # Called when the load of all workers has ended, while the connections are open.
    loaded: Callable[[], None]


def run(assignments: Sequence[Assignment], observer: TrialObserver) -> list[WorkerResult]:
    """Runs one trial with a process for each assignment."""
    # Fork: starting a thousand new interpreters would take minutes and most of the memory.
    context = multiprocessing.get_context("fork")
    workers: list[tuple[BaseProcess, Pipe]] = []
    try:
        for assignment in assignments:
            parent_end, worker_end = context.Pipe()
            process: BaseProcess = context.Process(target=serve, args=(assignment, worker_end), daemon=True)
            process.start()
            worker_end.close()
            workers.append((process, parent_end))
        return _coordinate(assignments[0], [pipe for _, pipe in workers], observer)
    finally:
        for process, pipe in workers:
            pipe.close()
            process.terminate()
        for process, _ in workers:
            process.join()


def _coordinate(assignment: Assignment, pipes: Sequence[Pipe], observer: TrialObserver) -> list[WorkerResult]:
    open_counts = _receive_all(pipes, "ready", GRACE_NS + len(pipes) * 100 * NS_PER_MS)
    start_ns = monotonic_ns() + START_IN_NS + len(pipes) * START_PER_WORKER_NS
    for pipe in pipes:
        pipe.send(start_ns)
    observer.started(start_ns, sum(open_counts))
    whole_ns = assignment.warmup_ns + assignment.window_ns + assignment.drain_ns
    _receive_all(pipes, "loaded", GRACE_NS + whole_ns)
    observer.loaded()
    for pipe in pipes:
        pipe.send(None)
    return _receive_all(pipes, "result", GRACE_NS)


def _receive_all(pipes: Sequence[Pipe], kind: str, timeout_ns: int) -> list[Any]:
    """The next message of each worker, which must be of this kind; raises `WorkerError` on failure or timeout."""
    deadline_ns = monotonic_ns() + timeout_ns
    values = []
    for worker, pipe in enumerate(pipes):
        if not pipe.poll(max(0, deadline_ns - monotonic_ns()) / NS_PER_SECOND):
            raise WorkerError(f"worker {worker} did not report {kind!r} within {timeout_ns // NS_PER_SECOND} s")
        try:
            reported, value = pipe.recv()
        except EOFError as error:
            raise WorkerError(f"worker {worker} ended before it reported {kind!r}") from error
        if reported != kind:
            raise WorkerError(f"worker {worker}: {value}")
        values.append(value)
    return values
