"""Clients side by side: the results of each, from one bundle per client, and published figures. Pure.

A client's row is its best valid trial of each kind, with what bound the flood. Where the generator bound it, the rate
is that client's limit and only a lower bound of the service's capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench_format.schemas import BoundBy, TrialResult, Witness

from . import wording
from .cells import NOTHING, Cell, Column, Table, Tone
from .load import Bundle
from .published import PublishedClient
from .seeds import CLIENTS, CORES
from .tables import AT_LEAST

FLOODS = ("throughput", "size-matrix", "format-comparison")
# Message size of the published floods, in bytes.
BASE_BYTES = 175

Choice = Callable[[TrialResult], float | None]


def clients(bundles: Sequence[Bundle]) -> Table:
    """One row for each client, number of processes and service over all bundles, in the given order."""
    columns = (
        Column("client", number=False),
        Column("service", number=False),
        Column("JSON delivered/s"),
        Column("binary delivered/s"),
        Column("accepted/s"),
        Column("most connections"),
        Column("client CPU per message"),
        Column("service CPU per message"),
        Column("JSON bound by", number=False),
    )
    found = [trial.result for bundle in bundles for trial in bundle.trials if trial.result is not None and trial.valid]
    groups = dict.fromkeys(_key(one) for one in found)
    rows = tuple(_row(key, [one for one in found if _key(one) == key]) for key in groups)
    notes = (
        "delivered/s: messages of 175 bytes per second of which the service's application read connection, type and"
        " data, and added up the number. Never what a client wrote.",
        f"{AT_LEAST}: the generator used up the CPU that it had, or both sides did; the service can do at least this.",
        "CPU per message: user and kernel, in the trial of the JSON column. On loopback the receiver's TCP work is"
        " charged to the sender.",
        "Only valid trials: the books of both sides balanced to the message.",
    )
    return Table("Clients side by side", columns, rows, notes)


def published() -> Table:
    """The published figures for the same kinds of client, with what they counted."""
    columns = (
        Column("published client", number=False),
        Column("processes"),
        Column("JSON/s"),
        Column("JSON/s per core"),
        Column("binary/s"),
        Column("binary/s per core"),
        Column("connections/s"),
        Column("most connections"),
        Column("what was counted", number=False),
    )
    notes = (
        f"Client and server shared {CORES} cores; per core is over those that the client's processes could use.",
        "Nobody asked the server what arrived, so no column is a throughput and none compares with the table above.",
    )
    rows = tuple(_published(client) for client in CLIENTS)
    return Table("As published, for orientation", columns, rows, notes)


def markdown(tables: Iterable[Table]) -> str:
    """Renders tables as Markdown."""
    return "\n".join(_markdown(table) for table in tables)


def _key(result: TrialResult) -> tuple[str, int, str]:
    """The key of a row: client program, number of processes, service."""
    program = result.workers[0].program if result.workers else wording.NOT_AVAILABLE
    return program, len(result.workers), result.trial.service


def _row(key: tuple[str, int, str], results: Sequence[TrialResult]) -> tuple[Cell, ...]:
    program, workers, service = key
    floods = [one for one in results if one.trial.workload in FLOODS and one.message.size_bytes == BASE_BYTES]
    json = _best((one for one in floods if one.message.format == "json"), _delivered)
    binary = _best((one for one in floods if one.message.format != "json"), _delivered)
    storm = _best(results, lambda one: one.figures.accepted_per_second)
    held = _best(results, lambda one: None if one.connections.failed else float(one.connections.open))
    bound = json.bound_by if json else None
    return (
        Cell(program, "1 process" if workers == 1 else f"{wording.count(workers)} processes"),
        Cell(service),
        _rate(json, _delivered, _format),
        _rate(binary, _delivered, _format),
        _rate(storm, lambda one: one.figures.accepted_per_second, _at),
        Cell(wording.count(held.connections.open)) if held else NOTHING,
        _cost(json.figures.worker_cpu_seconds_per_million if json else None),
        _cost(json.figures.service_cpu_seconds_per_million if json else None),
        Cell(bound, tone=Tone.GOOD if bound is BoundBy.SERVICE else Tone.WARN) if bound else NOTHING,
    )


def _delivered(result: TrialResult) -> float | None:
    return result.figures.delivered_per_second if result.witness is Witness.APPLICATION else None


def _best(results: Iterable[TrialResult], choice: Choice) -> TrialResult | None:
    known = [(value, one) for one in results if (value := choice(one)) is not None]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _rate(result: TrialResult | None, choice: Choice, detail: Callable[[TrialResult], str]) -> Cell:
    if result is None:
        return NOTHING
    sign = AT_LEAST if result.bound_by in (BoundBy.GENERATOR, BoundBy.BOTH) else ""
    return Cell(sign + wording.rate(choice(result)), detail(result))


def _at(result: TrialResult) -> str:
    return wording.number_of(result.trial.tier, "connections")


def _format(result: TrialResult) -> str:
    name = "" if result.message.format == "json" else f"{result.message.format}, "
    return name + _at(result)


def _cost(seconds_per_million: float | None) -> Cell:
    """CPU per message in microseconds: seconds per million messages have the same number."""
    return NOTHING if seconds_per_million is None else Cell(f"{wording.digits(seconds_per_million)}{wording.GAP}µs")


def _published(client: PublishedClient) -> tuple[Cell, ...]:
    def per_core(rate: float | None) -> Cell:
        return NOTHING if rate is None else Cell(wording.rate(rate / client.cores))

    return (
        Cell(client.client),
        Cell(wording.count(client.processes)),
        Cell(wording.rate(client.json)),
        per_core(client.json),
        Cell(wording.rate(client.binary)),
        per_core(client.binary),
        Cell(wording.rate(client.accepted)),
        Cell(wording.count(client.connections)),
        Cell(client.counted),
    )


def _markdown(table: Table) -> str:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def shown(cell: Cell) -> str:
        return f"{cell.text} ({cell.detail})" if cell.detail else cell.text

    head = [line(column.title for column in table.columns)]
    head.append(line("---:" if column.number else "---" for column in table.columns))
    rows = [line(shown(cell) for cell in row) for row in table.rows]
    text = "\n".join([f"**{table.caption}**", "", *head, *rows, "", *(f"- {note}" for note in table.notes), ""])
    return wording.plain(text)
