"""Recomputes what workers and service counted: equations, books of each connection, outcomes, sums and readings."""

from __future__ import annotations

from bench_format.meaning import balance, is_valid, summed
from bench_format.schemas import ConnectionBook, Reading, ReceiverBook, TrialResult, Witness, WorkerBook

from .claims import Claims
from .load import Trial


def of_trial(trial: Trial, result: TrialResult) -> Claims:
    """Recomputes the equations, the books of each connection, the outcomes, and the sums over the workers."""
    yield from _equations(result)
    yield from _connection_books(trial, result)
    yield from _outcomes(result)
    yield from _sums(trial, result)


def _equations(result: TrialResult) -> Claims:
    for equation in result.books.equations:
        yield (
            f"the terms of {equation.name!r} add up to {summed(equation)}, not {equation.right}",
            equation.right == summed(equation),
        )
    yield "it is called valid although its books don't balance", balance(result.books) or not is_valid(result.validity)


def _connection_books(trial: Trial, result: TrialResult) -> Claims:
    """Compares the books of workers and service again, connection by connection."""
    if trial.service is not None:
        yield "service.json and result.json have other readings", trial.service.readings == result.service
    claimed = result.books.connections
    if claimed is None or trial.service is None or trial.service.connections is None:
        return
    sent = [book for worker in trial.workers for book in worker.books]
    known = {book.id: book for book in trial.service.connections}
    wrong = sum(not _agree(book, known.pop(book.id, None)) for book in sent)
    others = frozenset() if trial.file is None else frozenset(trial.file.others)
    wrong += sum(book.received > 0 and book.id not in others for book in known.values())
    difference = f"{claimed.mismatched} of {claimed.compared} connections are said to differ"
    description = f"{difference}, counted again {wrong} of {len(sent)}"
    yield description, (claimed.compared, claimed.mismatched) == (len(sent), wrong)


def _agree(worker: WorkerBook, service: ConnectionBook | None) -> bool:
    """Whether a connection's messages are accounted for; the application doesn't see numbers of dropped messages."""
    if service is None:
        return False
    receiver = worker.receiver
    if receiver is not None and not _received(receiver, service.sent):
        return False
    sent, application = worker.sent + worker.unnumbered, service.application
    if sent != service.received or application is None:
        return sent == service.received
    accounted = application.delivered + service.dropped + service.consumed
    numbers = service.dropped > 0 or application.sequence_sum == worker.sequence_sum
    return sent == accounted and numbers


def _received(receiver: ReceiverBook, sent: int | None) -> bool:
    """Whether the messages a receiver counted are complete from first to last and equal the number sent to it."""
    first, last = receiver.first, receiver.last
    expected = 0 if first is None or last is None else last - first + 1
    messages = receiver.received + receiver.duplicated + receiver.wrong + receiver.others
    claimed = sent is None or not receiver.closed or messages == sent
    return expected == receiver.received + receiver.missing and claimed


def _outcomes(result: TrialResult) -> Claims:
    messages, connections = result.messages, result.connections
    ended = messages.delivered + messages.late + messages.wrong + messages.lost + messages.unsent
    ended += sum(messages.dropped.values())
    if is_valid(result.validity) and result.witness is not Witness.NONE:
        yield f"{messages.due} messages were due but {ended} have an outcome", messages.due == ended
    if result.witness is Witness.RECEIVER:
        yield f"{messages.sent} were sent by connections that only receive", messages.sent == 0
    else:
        yield (
            f"{messages.sent} were sent, {messages.unsent} unsent and {messages.due} due",
            messages.sent + messages.unsent == messages.due,
        )
    tried = connections.open + sum(connections.failed.values())
    yield (
        f"{connections.attempted} connections were attempted but {tried} have an outcome",
        connections.attempted == tried,
    )


def _sums(trial: Trial, result: TrialResult) -> Claims:
    if not trial.workers:
        return
    # Messages that the service dropped after a receiver's last one were due as well; only the service counts them.
    received = result.witness is Witness.RECEIVER
    counted = "delivered" if received else "due"
    pairs: list[tuple[str, int, list[int]]] = [
        (
            f"messages {counted}",
            getattr(result.messages, counted),
            [getattr(worker.messages, counted) for worker in trial.workers],
        ),
        ("messages sent", result.messages.sent, [worker.messages.sent for worker in trial.workers]),
        ("connections attempted", result.connections.attempted, [w.connections.attempted for w in trial.workers]),
        ("connections open", result.connections.open, [worker.connections.open for worker in trial.workers]),
    ]
    for name, whole, parts in pairs:
        yield f"{name}: {whole} in the result, {sum(parts)} over the workers", whole == sum(parts)


def of_readings(result: TrialResult) -> Claims:
    """Compares the service's counters and processes within and between its readings."""
    readings = result.service
    named = {
        "before": readings.before,
        "at the window's start": readings.window_start,
        "at the window's end": readings.window_end,
        "after": readings.after,
    }
    for name, reading in named.items():
        if reading is None:
            continue
        # A service without books per connection may not count what it receives.
        if result.books.connections is None:
            continue
        messages = reading.stats.messages
        placed = messages.consumed + messages.delivered + sum(messages.dropped.values()) + messages.queued
        if is_valid(result.validity):
            yield f"{name}, the service received {messages.received} but placed {placed}", messages.received == placed
    pids = {_processes(reading) for reading in named.values() if reading is not None}
    if is_valid(result.validity):
        yield "it is called valid although the service's process changed", len(pids) <= 1


def _processes(reading: Reading) -> tuple[object, ...]:
    """The process ids of the service and its companions; they must not change during a trial."""
    return (reading.pid, *sorted((name, process.pid) for name, process in reading.companions.items()))
