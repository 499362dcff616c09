"""The worker processes of a trial: all are forked, all open their connections, and all start at one moment.

This process offers no load itself: so it reads the service's counters on time.
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

# From "all are ready" to the start: enough to tell every worker, each of which has to be woken.
START_IN_NS = 50 * NS_PER_MS
START_PER_WORKER_NS = NS_PER_MS // 2
# Longest wait for a worker beyond what its assignment takes, in nanoseconds.
SPARE_NS = 60 * NS_PER_SECOND


class WorkerError(Exception):
    """A worker that can't take part; the text says which and why."""


@dataclass(frozen=True)
class Watch:
    """What else happens during a trial."""

    # All are ready: the start on the monotonic clock, in nanoseconds, and how many connections are open.
    started: Callable[[int, int], None]
    # The load of all is over and the connections are still open.
    loaded: Callable[[], None]


def run(assignments: Sequence[Assignment], watch: Watch) -> list[WorkerResult]:
    """One trial, a process for each assignment."""
    # Forked: a thousand interpreters that start anew would take minutes and most of the memory.
    context = multiprocessing.get_context("fork")
    workers: list[tuple[BaseProcess, Pipe]] = []
    try:
        for assignment in assignments:
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=serve, args=(assignment, theirs), daemon=True)
            process.start()
            theirs.close()
            workers.append((process, ours))
        return _conduct(assignments[0], [pipe for _, pipe in workers], watch)
    finally:
        for process, pipe in workers:
            pipe.close()
            process.terminate()
        for process, _ in workers:
            process.join()


def _conduct(assignment: Assignment, pipes: Sequence[Pipe], watch: Watch) -> list[WorkerResult]:
    opened = _hear_all(pipes, "ready", SPARE_NS + len(pipes) * 100 * NS_PER_MS)
    start_ns = monotonic_ns() + START_IN_NS + len(pipes) * START_PER_WORKER_NS
    for pipe in pipes:
        pipe.send(start_ns)
    watch.started(start_ns, sum(opened))
    whole_ns = assignment.warmup_ns + assignment.window_ns + assignment.drain_ns
    _hear_all(pipes, "loaded", SPARE_NS + whole_ns)
    watch.loaded()
    for pipe in pipes:
        pipe.send(None)
    return _hear_all(pipes, "result", SPARE_NS)


def _hear_all(pipes: Sequence[Pipe], kind: str, patience_ns: int) -> list[Any]:
    """What each worker says next, which has to be of a kind."""
    deadline_ns = monotonic_ns() + patience_ns
    heard = []
    for worker, pipe in enumerate(pipes):
        if not pipe.poll(max(0, deadline_ns - monotonic_ns()) / NS_PER_SECOND):
            raise WorkerError(f"worker {worker} did not say {kind!r} within {patience_ns // NS_PER_SECOND} s")
        try:
            said, value = pipe.recv()
        except EOFError as error:
            raise WorkerError(f"worker {worker} ended before it said {kind!r}") from error
        if said != kind:
            raise WorkerError(f"worker {worker}: {value}")
        heard.append(value)
    return heard
