"""The state of one trial in one worker process: its assignment, connections, clocks and counters."""

import time
from collections import Counter
from dataclasses import dataclass, field

from bench_format.schemas import Load, Message, Terms, TrialId, WindowCounts, Witness

from .clock import monotonic_ns
from .connection import Connection, Target
from .recorder import WindowRecorder


@dataclass(frozen=True)
class Workload:
    """The terms and counting rules of a workload."""

    terms: Terms
    # Whether messages reach the application, which sums up their numbers; the service answers pings itself.
    numbered: bool = False


# Keyed by workload name, in the order of the published suites.
WORKLOADS = {
    "connection-storm": Workload(Terms(Witness.REPLY, opens_in_window=True)),
    "ping-latency": Workload(Terms(Witness.REPLY, late_by="response")),
    "throughput": Workload(Terms(Witness.APPLICATION), numbered=True),
    "size-matrix": Workload(Terms(Witness.APPLICATION), numbered=True),
    "format-comparison": Workload(Terms(Witness.APPLICATION), numbered=True),
    "sustained-hold": Workload(Terms(Witness.REPLY)),
}


@dataclass(frozen=True)
class Assignment:
    """What one worker does in one trial. Times are in nanoseconds."""

    run: str
    trial: TrialId
    worker: int
    workers: int
    address: str
    token: str
    connections: int
    first_connection: int
    load: Load
    message: Message
    warmup_ns: int
    window_ns: int
    drain_ns: int
    # CPUs on which the worker runs; empty: those of its parent.
    cpus: frozenset[int] = frozenset()

    @property
    def workload(self) -> Workload:
        """The workload of the trial."""
        return WORKLOADS[self.trial.workload]

    @property
    def target(self) -> Target:
        """The address, token and message of the trial's connections."""
        return Target(self.address, self.token, self.message)


@dataclass(frozen=True)
class Mark:
    """Counters at an edge of the window."""

    at_ns: int
    offered: int
    sent: int
    replies: int
    writes: int
    cpu_ns: int


@dataclass
class Trial:
    """The state of a running trial."""

    assignment: Assignment
    connections: list[Connection] = field(default_factory=list)
    attempted: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    closed_early: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    writes: int = 0
    marks: list[Mark] = field(default_factory=list)
    start_ns: int = 0
    window_start_ns: int = 0
    window_end_ns: int = 0
    recorder: WindowRecorder = field(default_factory=lambda: WindowRecorder(0))

    def begin(self, start_ns: int) -> None:
        """Sets the start of the load, in nanoseconds of the monotonic clock, and the window that follows from it."""
        self.start_ns = start_ns
        self.window_start_ns = start_ns + self.assignment.warmup_ns
        self.window_end_ns = self.window_start_ns + self.assignment.window_ns
        self.recorder = WindowRecorder(self.window_start_ns)

    @property
    def deadline_ns(self) -> int:
        """The end of the drain, in nanoseconds of the monotonic clock."""
        return self.window_end_ns + self.assignment.drain_ns

    @property
    def offered(self) -> int:
        """Number of messages handed to the library on all connections."""
        return sum(connection.offered for connection in self.connections)

    def mark(self, unwritten: int = 0) -> None:
        """Records all counters, once at each edge of the window. `unwritten`: messages that wait in the process."""
        replies = sum(connection.replies for connection in self.connections)
        offered, cpu_ns = self.offered, time.process_time_ns()
        self.marks.append(Mark(monotonic_ns(), offered, offered - unwritten, replies, self.writes, cpu_ns))

    def window(self) -> WindowCounts:
        """The counts between the two marks."""
        start, end = self.marks
        replies = end.replies - start.replies
        return WindowCounts(
            duration_ns=end.at_ns - start.at_ns,
            due=end.offered - start.offered,
            sent=end.sent - start.sent,
            replies=replies,
            answered=replies,
            writes=end.writes - start.writes,
            cpu_ns=end.cpu_ns - start.cpu_ns,
        )
