"""Formats results as tables for a terminal and as JSON for programs."""

from collections.abc import Callable, Sequence

from bench_format.meaning import is_scheduled
from bench_format.schemas import BoundBy, TrialResult
from bench_format.wire import to_json, to_wire

from .bench import Outcome
from .payload import payload_bytes
from .profiles import Ladder
from .trial import WORKLOADS

NOT_AVAILABLE = "n/a"
NS_PER_MS = 1e6
BYTES_PER_MB = 1e6

Column = tuple[str, Callable[[TrialResult], str]]


def table(ladder: Ladder, outcomes: Sequence[Outcome]) -> str:
    """A table of one ladder's outcomes, followed by their problems."""
    columns = _columns(ladder)
    head = ["connections", "processes", *(title for title, _ in columns)]
    rows = [[f"{one.tier:,}", str(ladder.processes(one.tier)), *_cells(columns, one.result)] for one in outcomes]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    flood = WORKLOADS[ladder.workload].numbered
    message = f" ({ladder.message.format}, {payload_bytes(ladder.message)} bytes)" if flood else ""
    problems = [f"  ! {one.tier:,}: {problem}" for one in outcomes for problem in one.problems()]
    return "\n".join(
        [f"{ladder.workload} · {ladder.variant}{message}", *(f"  {line}" for line in lines), *problems, ""]
    )


def as_json(all_outcomes: Sequence[tuple[Ladder, Sequence[Outcome]]]) -> str:
    """A JSON list of outcomes: each has the bundle's `result.json`, or the problem."""
    return to_json(
        [
            {
                "test": ladder.workload,
                "variant": ladder.variant,
                "tier": one.tier,
                "problems": one.problems(),
                "result": to_wire(one.result),
            }
            for ladder, outcomes in all_outcomes
            for one in outcomes
        ]
    )


def _cells(columns: Sequence[Column], result: TrialResult | None) -> list[str]:
    return [NOT_AVAILABLE if result is None else cell(result) for _, cell in columns]


def _columns(ladder: Ladder) -> list[Column]:
    bound: Column = (
        "bound by",
        lambda one: one.bound_by or ("its schedule" if is_scheduled(one.load) else NOT_AVAILABLE),
    )
    if WORKLOADS[ladder.workload].numbered:
        return [*_FLOOD, bound]
    opened: Column = ("open", lambda one: str(one.connections.open))
    if ladder.workload == "connection-storm":
        failed: Column = ("failed", lambda one: str(sum(one.connections.failed.values())))
        accepted: Column = ("accepted/s", lambda one: _at_least(one, one.figures.accepted_per_second))
        return [opened, failed, accepted, *_latency("handshake_ns"), bound]
    survival: list[Column] = [("survival", _survival)] if ladder.workload == "sustained-hold" else []
    sent: Column = ("pings", lambda one: str(one.messages.sent))
    answered: Column = ("answered", lambda one: str(one.messages.delivered))
    return [*survival, opened, sent, answered, *_latency("response_ns"), bound]


def _at_least(result: TrialResult, rate: float | None) -> str:
    """Formats a rate; `≥` marks one that the generator limited, which is a lower bound of the service's rate."""
    return ("≥ " if result.bound_by is BoundBy.GENERATOR and rate is not None else "") + _rate(rate)


def _rate(rate: float | None) -> str:
    return NOT_AVAILABLE if rate is None else f"{rate:,.0f}"


def _fixed(value: float | None, digits: int) -> str:
    return NOT_AVAILABLE if value is None else f"{value:.{digits}f}"


def _megabytes(result: TrialResult) -> str:
    rate = result.figures.delivered_per_second
    return _fixed(None if rate is None else rate * payload_bytes(result.message) / BYTES_PER_MB, 1)


def _survival(result: TrialResult) -> str:
    counts = result.connections
    return f"{1 - sum(counts.closed_early.values()) / counts.open:.2%}" if counts.open else NOT_AVAILABLE


def _latency(name: str) -> list[Column]:
    def column(percentile: str) -> Column:
        def cell(result: TrialResult) -> str:
            value = result.percentiles.get(name, {}).get(percentile)
            return NOT_AVAILABLE if value is None else f"{value / NS_PER_MS:.3g}"

        return f"{percentile} ms", cell

    return [column(percentile) for percentile in ("p50", "p95", "p99", "max")]


_FLOOD: list[Column] = [
    ("delivered/s", lambda one: _at_least(one, one.figures.delivered_per_second)),
    ("received/s", lambda one: _rate(one.figures.received_per_second)),
    ("written/s (client)", lambda one: _rate(one.figures.written_per_second)),
    ("dropped/s", lambda one: _rate(one.figures.dropped_per_second)),
    ("MB/s delivered", _megabytes),
    ("service µs/msg", lambda one: _fixed(one.figures.service_cpu_seconds_per_million, 2)),
    ("client µs/msg", lambda one: _fixed(one.figures.worker_cpu_seconds_per_million, 2)),
    ("witness", lambda one: one.witness),
]
