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
from .connection import CLOSE_SECONDS, ConnectError, frame_bytes, open_one
from .flood import flood_many, flood_one
from .machine import environment, peak_rss_bytes, raise_open_files
from .payload import payload_bytes
from .pings import hold, open_all, ping_latency, storm
from .quota import quota
from .trial import Assignment as Assignment
from .trial import Trial

FLOODS = ("throughput", "size-matrix", "format-comparison")
AFTER_OPENING: dict[str, Callable[[Trial, list[AsyncSocket]], Awaitable[None]]] = {
    **dict.fromkeys(FLOODS, flood_many),
    "ping-latency": ping_latency,
    "sustained-hold": hold,
}


@dataclass(frozen=True)
class Gate:
    """The worker's side of the barrier with its parent."""

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
        pipe.send(("result", carry_out(assignment, Gate(pipe))))
    except EOFError:
        return  # The parent has exited.
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


def carry_out(assignment: Assignment, gate: Gate) -> WorkerResult:
    """Runs an assignment and returns its result."""
    trial = Trial(assignment)
    before = (time.process_time_ns(), unix_ns(), monotonic_ns())
    # A single flooding connection has its process to itself and may block; all other loads use an event loop.
    if assignment.connections == 1 and assignment.trial.workload in FLOODS:
        skew_ns = _alone(trial, gate)
    else:
        skew_ns = asyncio.run(_in_event_loop(trial, gate))
    return _result(trial, skew_ns, before)


def _alone(trial: Trial, gate: Gate) -> int:
    trial.attempted = 1
    try:
        socket, connection = open_one(trial.assignment.target)
    except ConnectError as error:
        trial.failed[str(error)] += 1
        trial.begin(gate.ready(0))
        for edge_ns in (trial.window_start_ns, trial.window_end_ns):
            wait_until(edge_ns)
            trial.mark()
        gate.loaded()
        return 0
    trial.connections.append(connection)
    skew_ns = _begin(trial, gate)
    flood_one(trial, socket)
    if not connection.open:
        trial.closed_early["closed 1006"] += 1
    gate.loaded()
    socket.close()
    return skew_ns


async def _in_event_loop(trial: Trial, gate: Gate) -> int:
    if trial.assignment.workload.terms.opens_in_window:
        skew_ns = _begin(trial, gate)
        sockets = await storm(trial)
    else:
        sockets = await open_all(trial)
        skew_ns = _begin(trial, gate)
        await AFTER_OPENING[trial.assignment.trial.workload](trial, sockets)
    # This blocks the event loop, which has nothing else to do meanwhile.
    gate.loaded()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * CLOSE_SECONDS):
            await asyncio.gather(*(socket.close() for socket in sockets), return_exceptions=True)
    return skew_ns


def _begin(trial: Trial, gate: Gate) -> int:
    """Waits for the common start; returns how late this process was, in nanoseconds."""
    start_ns = gate.ready(len(trial.connections))
    wait_until(start_ns)
    skew_ns = monotonic_ns() - start_ns
    trial.begin(start_ns)
    return skew_ns


def _result(trial: Trial, skew_ns: int, before: tuple[int, int, int]) -> WorkerResult:
    assignment, machine = trial.assignment, environment()
    cpu_ns, wall_ns, mono_ns = before
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
        messages=_messages(trial),
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
            clock_step_ns=(now_unix_ns - wall_ns) - (now_ns - mono_ns),
            # Only one thread of a process runs Python at a time.
            cpu_limit=min(1.0, len(os.sched_getaffinity(0)), quota() or 1.0),
            cpu_seconds=(time.process_time_ns() - cpu_ns) / NS_PER_SECOND,
            throttled_periods=None,
            periods=None,
            throttling="not_measured",
            rss_bytes=peak_rss_bytes(),
            nodelay=bool(trial.connections),
            congestion_control=machine.congestion_control,
        ),
        environment=machine,
    )


def _messages(trial: Trial) -> MessageCounts:
    due, unsent = trial.offered, sum(connection.unsent for connection in trial.connections)
    replied = sum(connection.replies for connection in trial.connections)
    by_reply = trial.assignment.workload.terms.witness == "reply"
    # Exact when all messages have one size; compressed ones and pings differ by a few bytes each.
    each = frame_bytes(payload_bytes(trial.assignment.message), masked=True)
    counts: dict[str, Any] = {
        "due": due,
        "sent": due - unsent,
        "delivered": replied if by_reply else 0,
        "lost": due - unsent - replied if by_reply else 0,
        "unsent": unsent,
        "duplicates": trial.duplicates,
        "bytes_sent": (due - unsent) * each,
        "bytes_received": sum(connection.bytes_received for connection in trial.connections),
    }
    return MessageCounts(late=0, wrong=0, dropped={}, reorders=0, **counts)
