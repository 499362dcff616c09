"""Runs trials one by one: reads the service, loads it, reads it again, has the trial judged, adds it to the bundle."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_format.meaning import reasons
from bench_format.schemas import (
    SCHEMA,
    BookKeeping,
    ConnectionBook,
    Cpus,
    Load,
    LoadOpen,
    Reading,
    ServiceFile,
    ServiceReadings,
    Thresholds,
    TrialFile,
    TrialId,
    TrialResult,
    WorkerResult,
)

from . import worker_pool
from .bundle import Bundle, command
from .cli import Options
from .clock import NS_PER_SECOND
from .judge import Judge, JudgeError, write_trial
from .profiles import Ladder
from .service import Service, ServiceError
from .trial import WORKLOADS, Assignment


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial, one row of a table; without a result when the trial failed."""

    ladder: Ladder
    tier: int
    result: TrialResult | None = None
    problem: str = ""

    def problems(self) -> list[str]:
        """Why the result isn't clean; empty when the trial is valid and nothing failed."""
        if self.result is None:
            return [self.problem]
        found = [f"{reason.kind}: {reason.detail}" for reason in reasons(self.result.validity)]
        connections, messages = self.result.connections, self.result.messages
        found += [f"{count} connections failed: {why}" for why, count in connections.failed.items()]
        found += [f"{count} connections ended early: {why}" for why, count in connections.closed_early.items()]
        if self.result.witness == "reply" and messages.lost:
            found.append(f"{messages.lost} pings without an answer")
        return found


@dataclass
class _ServiceObserver:
    """The readings of the service while a trial runs."""

    service: Service | None
    ladder: Ladder
    assignment: Assignment
    # Ids of connections that the service has before the trial: they belong to other clients.
    others: set[str]
    keeping: BookKeeping = BookKeeping.NONE
    open_at_start: int = 0
    edges: list[Reading] = field(default_factory=list)

    def started(self, start_ns: int, opened: int) -> None:
        """Reads the service at the window's edges; blocks, because this process does nothing else during the window."""
        self.open_at_start = opened
        if self.service is None:
            return
        window_start_ns = start_ns + self.assignment.warmup_ns
        self.edges.append(self.service.read_at(window_start_ns))
        if self.ladder.fixed_window:
            self.edges.append(self.service.read_at(window_start_ns + self.assignment.window_ns))

    def loaded(self) -> None:
        """For a load without a fixed window: reads the service at its end, while all connections are open."""
        if self.service is not None and not self.ladder.fixed_window:
            self.edges.append(self.service.read())


@dataclass(frozen=True)
class Bench:
    """Runs trials with the given options, judge, service and bundle."""

    options: Options
    judge: Judge
    service: Service | None
    service_name: str
    run: str
    bundle: Bundle | None

    def measure(self, ladder: Ladder, tier: int) -> Outcome:
        """Runs one trial; a failure is returned as an outcome."""
        trial = TrialId(self.service_name, ladder.workload, ladder.variant, tier, 1, 1)
        try:
            result = self._measure(ladder, trial)
        except (worker_pool.WorkerError, JudgeError, ServiceError, OSError) as error:
            if self.bundle is not None:
                self.bundle.add_failed(ladder, trial, str(error))
            return Outcome(ladder, tier, problem=str(error))
        return Outcome(ladder, tier, result)

    def _measure(self, ladder: Ladder, trial: TrialId) -> TrialResult:
        service, drain_ns = self.service, int(self.options.drain * NS_PER_SECOND)
        assignments = assign(self.options, self.run, ladder, trial)
        others = {book.id for book in (service.connections() or [] if service else [])}
        before = service.settled(service.read(), 0, drain_ns) if service else None
        observer = _ServiceObserver(service, ladder, assignments[0], others)
        results = worker_pool.run(assignments, worker_pool.TrialObserver(observer.started, observer.loaded))
        expected = sum(book.sent + book.unnumbered for result in results for book in result.books)
        after = service.settled(before, expected, drain_ns) if service and before else None
        connections = service.connections() if service else None
        start, end = (*observer.edges, None, None)[:2]
        readings = ServiceReadings(before=before, window_start=start, window_end=end, after=after)
        observer.keeping = _book_keeping(service, connections)
        file = self._trial_file(ladder, trial, results, readings, observer)
        with self._trial_folder(trial) as folder:
            write_trial(folder, file, results, ServiceFile(SCHEMA, readings, connections=connections))
            result = self.judge.judge(folder)
        if self.bundle is not None:
            self.bundle.add(ladder, result)
        return result

    def _trial_file(
        self,
        ladder: Ladder,
        trial: TrialId,
        results: Sequence[WorkerResult],
        readings: ServiceReadings,
        observer: _ServiceObserver,
    ) -> TrialFile:
        """The content of `trial.json`: what the judge needs beside the counts of the workers and the service."""
        service = self.service
        all_readings = (readings.before, readings.window_start, readings.window_end, readings.after)
        workers = self.options.cpus or frozenset(os.sched_getaffinity(0))
        return TrialFile(
            schema=SCHEMA,
            run=self.run,
            trial=trial,
            attempt=1,
            started_at_unix_ns=results[0].evidence.start_at_unix_ns,
            load=ladder.load(trial.tier),
            message=ladder.message,
            objectives=[],
            thresholds=Thresholds(),
            terms=WORKLOADS[ladder.workload].terms,
            keeping=observer.keeping,
            workers=ladder.processes(trial.tier),
            window_ns=observer.assignment.window_ns,
            open_at_start=observer.open_at_start,
            rss_peak_bytes=max((reading.rss_bytes or 0 for reading in all_readings if reading), default=0),
            rss_at_rest_bytes=service.at_rest(readings.before) if service and readings.before else None,
            cpus=Cpus(float(len(workers)), shared_with_service=bool(service and workers & service.cpus())),
            reproduce=command(self.options, "--tests", ladder.workload),
            others=sorted(observer.others),
        )

    @contextmanager
    def _trial_folder(self, trial: TrialId) -> Iterator[Path]:
        """The folder in which a trial is judged: inside the bundle, else a temporary one."""
        if self.bundle is not None:
            yield self.bundle.folder_of(trial)
            return
        with TemporaryDirectory(prefix="wse-py-bench-") as folder:
            yield Path(folder)


def _book_keeping(service: Service | None, connections: list[ConnectionBook] | None) -> BookKeeping:
    if service is None:
        return BookKeeping.NONE
    return BookKeeping.TOTALS if connections is None else BookKeeping.CONNECTIONS


def assign(options: Options, run: str, ladder: Ladder, trial: TrialId) -> list[Assignment]:
    """The assignment of each worker; connections and the rate are divided among them."""
    tier, workers = trial.tier, ladder.processes(trial.tier)
    borders = [tier * worker // workers for worker in range(workers + 1)]

    def share(connections: int) -> Load:
        whole = ladder.load(tier)
        if not isinstance(whole, LoadOpen):
            return whole
        return replace(whole, rate_per_second=whole.rate_per_second * connections / tier)

    return [
        Assignment(
            run=run,
            trial=trial,
            worker=worker,
            workers=workers,
            address=f"{options.host}:{options.port}",
            token=options.token,
            connections=borders[worker + 1] - first,
            first_connection=first,
            load=share(borders[worker + 1] - first),
            message=ladder.message,
            warmup_ns=int(ladder.warmup_seconds * NS_PER_SECOND),
            window_ns=int(ladder.window_seconds * NS_PER_SECOND),
            drain_ns=int(options.drain * NS_PER_SECOND),
            cpus=options.cpus,
        )
        for worker, first in enumerate(borders[:-1])
    ]
