"""The equations of a trial, from both sides' counters after the drain. Pure.

They are those of `ladder`, by the same names: docs/METHODOLOGY.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bench_format.meaning import WRAP
from bench_format.schemas import (
    ApplicationStats,
    Books,
    ConnectionBook,
    ConnectionCheck,
    Equation,
    MessageCounts,
    ServiceStats,
    Witness,
    WorkerBook,
)

from .merge import Merged

NAMED_MISMATCHES = 10
Terms = list[tuple[str, int]]


@dataclass(frozen=True)
class Delta:
    """What a service counted between two readings."""

    accepted: int
    received: int
    consumed: int
    delivered: int
    dropped: dict[str, int]
    # Still waiting for the application, at the later reading.
    queued: int
    application: ApplicationStats | None


def between(earlier: ServiceStats, later: ServiceStats) -> Delta:
    """Later minus earlier."""
    before, after = earlier.messages, later.messages
    grown = {reason: count - before.dropped.get(reason, 0) for reason, count in after.dropped.items()}
    first, last = earlier.application or ApplicationStats(0, 0, 0), later.application
    return Delta(
        accepted=later.connections.accepted - earlier.connections.accepted,
        received=after.received - before.received,
        consumed=after.consumed - before.consumed,
        delivered=after.delivered - before.delivered,
        dropped={reason: count for reason, count in grown.items() if count > 0},
        queued=after.queued,
        application=last
        and ApplicationStats(
            last.delivered - first.delivered,
            (last.sequence_sum - first.sequence_sum) % WRAP,
            last.unnumbered - first.unnumbered,
        ),
    )


def witness(claimed: Witness, delta: Delta | None) -> Witness:
    """Who says that messages arrived: an application that isn't there has seen nothing."""
    missing = delta is None or delta.application is None
    return Witness.NONE if claimed is Witness.APPLICATION and missing else claimed


def complete(messages: MessageCounts, claimed: Witness, delta: Delta | None) -> MessageCounts:
    """The counts, completed with what only the service knows."""
    if claimed is Witness.REPLY or delta is None:
        return messages
    delivered = delta.application.delivered if delta.application else 0
    lost = max(0, messages.sent - delivered - sum(delta.dropped.values()))
    return replace(messages, delivered=delivered, dropped=delta.dropped, lost=lost)


def books(merged: Merged, claimed: Witness, delta: Delta | None, service: Sequence[ConnectionBook] | None) -> Books:
    """Every equation that the counters allow."""
    counts = merged.connections
    failed = sum(counts.failed.values())
    equations = [_equation("attempted = open + failed", counts.attempted, [("open", counts.open), ("failed", failed)])]
    if delta is not None:
        equations.append(_accepted(delta.accepted, counts.open, failed))
    if merged.messages.due:
        equations += _of_workers(merged, claimed)
        if delta is not None:
            # A service with totals only may not count what it receives, or hands over.
            if service is not None or delta.received:
                equations += _of_service(merged, delta)
            equations += _of_application(merged, claimed, delta, each=service is not None)
    return Books(equations, connections=None if service is None else _compare(merged.books, service))


def _equation(name: str, left: int, terms: Terms) -> Equation:
    return Equation(name, left, sum(count for _, count in terms) % WRAP, terms)


def _accepted(service: int, opened: int, failed: int) -> Equation:
    """An attempt can fail after the service accepted it; more than that needs another explanation."""
    late = min(max(0, service - opened), failed)
    terms = [("open", opened)] + [("failed after it was accepted", late)] * bool(late)
    return _equation("accepted (service) = open (workers)", service, terms)


def _of_workers(merged: Merged, claimed: Witness) -> Iterator[Equation]:
    counts = merged.messages
    if claimed is Witness.REPLY:
        terms = [(name, getattr(counts, name)) for name in ("delivered", "late", "wrong")]
        terms += [("dropped", sum(counts.dropped.values())), ("lost", counts.lost), ("unsent", counts.unsent)]
        yield _equation("due = delivered + late + wrong + dropped + lost + unsent", counts.due, terms)
    yield _equation("due = sent + unsent", counts.due, [("sent", counts.sent), ("unsent", counts.unsent)])
    by_connection = sum(book.sent for book in merged.books)
    name = "sent = sum over the workers' connections"
    yield _equation(name, counts.sent, [("sent by connections", by_connection)])


def _of_service(merged: Merged, delta: Delta) -> Iterator[Equation]:
    unnumbered = sum(book.unnumbered for book in merged.books)
    terms = [("sent", merged.messages.sent), ("unnumbered", unnumbered)]
    yield _equation("received (service) = sent + unnumbered (workers)", delta.received, terms)
    fates = [("consumed", delta.consumed), ("delivered", delta.delivered), *_drops(delta), ("queued", delta.queued)]
    yield _equation("received = consumed + delivered + dropped + queued", delta.received, fates)


def _of_application(merged: Merged, claimed: Witness, delta: Delta, *, each: bool) -> Iterator[Equation]:
    application = delta.application
    if application is None or claimed is not Witness.APPLICATION:
        return
    counted = ("delivered (application)", application.delivered)
    if each or delta.delivered:
        yield _equation("delivered (service) = delivered (application)", delta.delivered, [counted])
    sent = merged.messages.sent
    yield _equation("sent = delivered (application) + dropped", sent, [counted, *_drops(delta)])
    if not delta.dropped:
        total = sum(book.sequence_sum for book in merged.books) % WRAP
        seen = ("sequence sum delivered", application.sequence_sum)
        yield _equation("sequence sum sent = sequence sum delivered", total, [seen])


def _drops(delta: Delta) -> Terms:
    return [(f"dropped({reason})", count) for reason, count in delta.dropped.items()]


def _compare(workers: Iterable[WorkerBook], service: Sequence[ConnectionBook]) -> ConnectionCheck:
    """Both sides' books, connection by connection."""
    known = {book.id: book for book in service}
    wrong = []
    compared = 0
    for worker in workers:
        compared += 1
        book = known.pop(worker.id, None)
        words = "the service doesn't know this connection" if book is None else _difference(worker, book)
        if words:
            wrong.append(f"{worker.id}: {words}")
    strangers = [book for book in known.values() if book.received > 0]
    wrong += [f"{one.id}: no worker knows this connection, which sent {one.received}" for one in strangers]
    return ConnectionCheck(compared, len(wrong), wrong[:NAMED_MISMATCHES])


def _difference(worker: WorkerBook, service: ConnectionBook) -> str:
    sent = worker.sent + worker.unnumbered
    if sent != service.received:
        return f"sent {sent}, received {service.received}"
    application = service.application
    if application is None:
        return ""
    if sent != application.delivered + service.dropped + service.consumed:
        fates = f"{service.dropped} were dropped and {service.consumed} consumed"
        return f"sent {sent}, but the application counted {application.delivered}, {fates}"
    if not service.dropped and application.sequence_sum != worker.sequence_sum:
        return f"sequence sum sent {worker.sequence_sum}, delivered {application.sequence_sum}"
    return ""
