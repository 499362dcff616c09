"""One worker process runs one trial: opens connections, waits for the start, loads, drains, closes, reports."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from bench_format.schemas import SCHEMA, ConnectionCounts, MessageCounts, WorkerEvidence, WorkerResult
from websockets.asyncio.client import ClientConnection as AsyncSocket

from . import PROGRAM
from .clock import NS_PER_SECOND, monotonic_ns, unix_ns, wait_until
from .connection import CLOSE_SECONDS, ConnectError, frame_bytes, open_blocking
from .flood import flood_async, flood_blocking
from .machine import environment, peak_rss_bytes, raise_open_files
from .payload import payload_bytes
from .pings import hold, open_all, ping_latency, storm
from .quota import quota
from .trial import Assignment as Assignment
from .trial import Trial

FLOODS = ("throughput", "size-matrix", "format-comparison")
LOADS: dict[str, Callable[[Trial, list[AsyncSocket]], Awaitable[None]]] = {
    **dict.fromkeys(FLOODS, flood_async),
    "ping-latency": ping_latency,
    "sustained-hold": hold,
}


@dataclass(frozen=True)
class Barrier:
    """The barrier at which a worker waits for its parent."""

    pipe: Pipe

    def ready(self, opened: int) -> int:
        """Reports the number of open connections; returns the start in nanoseconds of the monotonic clock."""
        self.pipe.send(("ready", opened))
        start_ns: int = self.pipe.recv()
        return start_ns

    def loaded(self) -> None:
        """Reports the end of the load; returns when the parent has read the service while the connections are open."""
        self.pipe.send(("loaded", None))
        self.pipe.recv()


def serve(assignment: Assignment, pipe: Pipe) -> None:
    """The main function of a worker process."""
    raise_open_files()
    if assignment.cpus:
        os.sched_setaffinity(0, assignment.cpus)
    try:
        pipe.send(("result", run_assignment(assignment, Barrier(pipe))))
    except EOFError:
        return  # The parent has exited.
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


def run_assignment(assignment: Assignment, barrier: Barrier) -> WorkerResult:
    """Runs an assignment and returns its result."""
    trial = Trial(assignment)
    before = (time.process_time_ns(), unix_ns(), monotonic_ns())
    # A single flooding connection has its process to itself and may block; all other loads use an event loop.
    if assignment.connections == 1 and assignment.trial.workload in FLOODS:
        skew_ns = _run_blocking(trial, barrier)
    else:
        skew_ns = asyncio.run(_run_in_event_loop(trial, barrier))
    return _worker_result(trial, skew_ns, before)


def _run_blocking(trial: Trial, barrier: Barrier) -> int:
    trial.attempted = 1
    try:
        socket, connection = open_blocking(trial.assignment.target)
    except ConnectError as error:
        trial.failed[str(error)] += 1
        trial.begin(barrier.ready(0))
        for edge_ns in (trial.window_start_ns, trial.window_end_ns):
            wait_until(edge_ns)
            trial.mark()
        barrier.loaded()
        return 0
    trial.connections.append(connection)
    skew_ns = _wait_for_start(trial, barrier)
    flood_blocking(trial, socket)
    if not connection.open:
        trial.closed_early["closed 1006"] += 1
    barrier.loaded()
    socket.close()
    return skew_ns


async def _run_in_event_loop(trial: Trial, barrier: Barrier) -> int:
    if trial.assignment.workload.terms.opens_in_window:
        skew_ns = _wait_for_start(trial, barrier)
        sockets = await storm(trial)
    else:
        sockets = await open_all(trial)
        skew_ns = _wait_for_start(trial, barrier)
        await LOADS[trial.assignment.trial.workload](trial, sockets)
    # This blocks the event loop, which has nothing else to do meanwhile.
    barrier.loaded()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * CLOSE_SECONDS):
            await asyncio.gather(*(socket.close() for socket in sockets), return_exceptions=True)
    return skew_ns


def _wait_for_start(trial: Trial, barrier: Barrier) -> int:
    """Waits for the common start; returns how late this process was, in nanoseconds."""
    start_ns = barrier.ready(len(trial.connections))
    wait_until(start_ns)
    skew_ns = monotonic_ns() - start_ns
    trial.begin(start_ns)
    return skew_ns


def _worker_result(trial: Trial, skew_ns: int, before: tuple[int, int, int]) -> WorkerResult:
    assignment, machine = trial.assignment, environment()
    cpu_before_ns, unix_before_ns, monotonic_before_ns = before
    now_unix_ns, now_ns = unix_ns(), monotonic_ns()
    return WorkerResult(
        schema=SCHEMA,
        run=assignment.run,
        trial=assignment.trial,
        attempt=1,
        worker=assignment.worker,
        witness=assignment.workload.terms.witness,
        connections=ConnectionCounts(
            trial.attempted, len(trial.connections), dict(trial.failed), dict(trial.closed_early)
        ),
        messages=_message_counts(trial),
        window=trial.window(),
        histograms=trial.recorder.finish(),
        intervals=trial.recorder.intervals,
        books=[connection.book(numbered=assignment.workload.numbered) for connection in trial.connections],
        evidence=WorkerEvidence(
            program=PROGRAM,
            start_at_unix_ns=now_unix_ns - (now_ns - trial.start_ns),
            start_skew_ns=skew_ns,
            # All processes of a run share one machine and its monotonic clock.
            clock_offset_ns=0,
            clock_uncertainty_ns=0,
            clock_step_ns=(now_unix_ns - unix_before_ns) - (now_ns - monotonic_before_ns),
            # Only one thread of a process runs Python at a time.
            cpu_limit=min(1.0, len(os.sched_getaffinity(0)), quota() or 1.0),
            cpu_seconds=(time.process_time_ns() - cpu_before_ns) / NS_PER_SECOND,
            throttled_periods=None,
            periods=None,
            throttling="not_measured",
            rss_bytes=peak_rss_bytes(),
            nodelay=bool(trial.connections),
            congestion_control=machine.congestion_control,
        ),
        environment=machine,
    )


def _message_counts(trial: Trial) -> MessageCounts:
    due, unsent = trial.offered, sum(connection.unsent for connection in trial.connections)
    replied = sum(connection.replies for connection in trial.connections)
    by_reply = trial.assignment.workload.terms.witness == "reply"
    # Exact when all messages have one size; compressed messages and pings differ by a few bytes.
    frame_size = frame_bytes(payload_bytes(trial.assignment.message), masked=True)
    counts: dict[str, Any] = {
        "due": due,
        "sent": due - unsent,
        "delivered": replied if by_reply else 0,
        "lost": due - unsent - replied if by_reply else 0,
        "unsent": unsent,
        "duplicates": trial.duplicates,
        "bytes_sent": (due - unsent) * frame_size,
        "bytes_received": sum(connection.bytes_received for connection in trial.connections),
    }
    return MessageCounts(late=0, wrong=0, dropped={}, reorders=0, **counts)
