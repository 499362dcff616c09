"""`connection-storm`, `ping-latency`, `sustained-hold`: loads answered by the service itself, in one event loop."""

import asyncio
from collections.abc import Awaitable, Callable

from bench_format.schemas import LoadClosed, LoadOpen
from websockets.asyncio.client import ClientConnection as AsyncSocket
from websockets.exceptions import ConnectionClosed

from .clock import NS_PER_SECOND, monotonic_ns
from .connection import ConnectError, Connection, closed_reason, frame_bytes, open_async
from .payload import ping, pong_number
from .trial import Trial

# Handshakes in flight over all workers when the load doesn't set a number.
OPEN_IN_FLIGHT = 256


async def open_all(trial: Trial, opened: Callable[[int, int], None] = lambda *_: None) -> list[AsyncSocket]:
    """Opens all connections with a limit on handshakes in flight; `opened` gets each one's duration and end time."""
    assignment = trial.assignment
    model = assignment.load
    limit = model.in_flight if isinstance(model, LoadClosed) else OPEN_IN_FLIGHT
    indices = iter(range(assignment.connections))
    sockets: list[AsyncSocket] = []

    async def opener() -> None:
        for index in indices:
            started_ns = monotonic_ns()
            trial.attempted += 1
            try:
                number = assignment.first_connection + index
                socket, connection = await open_async(assignment.target, number, assignment.trial.tier)
            except ConnectError as error:
                trial.failed[str(error)] += 1
                continue
            ended_ns = monotonic_ns()
            opened(ended_ns - started_ns, ended_ns)
            sockets.append(socket)
            trial.connections.append(connection)

    in_flight = max(1, min(assignment.connections, limit // assignment.workers))
    await asyncio.gather(*(opener() for _ in range(in_flight)))
    return sockets


async def storm(trial: Trial) -> list[AsyncSocket]:
    """Opens connections inside the window, without pauses."""
    trial.mark()
    sockets = await open_all(
        trial, lambda duration_ns, at_ns: trial.recorder.record("handshake_ns", duration_ns, at_ns)
    )
    trial.mark()
    return sockets


async def ping_latency(trial: Trial, sockets: list[AsyncSocket]) -> None:
    """Sends a fixed number of pings per connection, each after the reply to the last; a ping has no timeout."""
    model = trial.assignment.load
    pings_per_connection = (model.messages_per_connection if isinstance(model, LoadClosed) else None) or 1

    async def pings(socket: AsyncSocket, connection: Connection) -> None:
        for _ in range(pings_per_connection):
            sent_ns = monotonic_ns()
            if not await _ping(trial, socket, connection, sent_ns):
                return
            while connection.pending:
                _handle_message(trial, connection, await socket.recv())

    trial.mark()
    await _run_on_all(trial, sockets, pings, (trial.window_end_ns - monotonic_ns()) / NS_PER_SECOND)
    trial.mark()


async def hold(trial: Trial, sockets: list[AsyncSocket]) -> None:
    """Sends pings on a schedule fixed before the start; latency counts from when a ping was due."""
    model = trial.assignment.load
    interval_ns = NS_PER_SECOND / model.rate_per_second if isinstance(model, LoadOpen) else 0.0
    total = int(trial.assignment.window_ns / interval_ns) if sockets else 0
    readers = [
        asyncio.create_task(_handle_messages(trial, socket, connection))
        for socket, connection in zip(sockets, trial.connections, strict=True)
    ]
    await _until(trial.window_start_ns)
    trial.mark()
    for number in range(total):
        due_ns = trial.window_start_ns + int(number * interval_ns)
        await _until(due_ns)
        index = number % len(sockets)
        await _ping(trial, sockets[index], trial.connections[index], due_ns)
    await _until(trial.window_end_ns)
    trial.mark()
    while any(connection.pending for connection in trial.connections) and monotonic_ns() < trial.deadline_ns:
        await asyncio.sleep(0.01)
    for task in readers:
        task.cancel()


async def _until(moment_ns: int) -> None:
    if (remaining_ns := moment_ns - monotonic_ns()) > 0:
        await asyncio.sleep(remaining_ns / NS_PER_SECOND)


async def _run_on_all(
    trial: Trial,
    sockets: list[AsyncSocket],
    action: Callable[[AsyncSocket, Connection], Awaitable[None]],
    seconds: float,
) -> None:
    """Runs `action` on every connection until all are done or `seconds` have passed."""

    async def run(socket: AsyncSocket, connection: Connection) -> None:
        try:
            await action(socket, connection)
        except (ConnectionClosed, OSError) as error:
            _record_close(trial, connection, error)

    tasks = [
        asyncio.create_task(run(socket, connection))
        for socket, connection in zip(sockets, trial.connections, strict=True)
    ]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()


async def _ping(trial: Trial, socket: AsyncSocket, connection: Connection, due_ns: int) -> bool:
    """Sends one ping; returns whether it was sent."""
    number = connection.next_sequence
    connection.next_sequence += 1
    sent_ns = monotonic_ns()
    connection.pending[number] = (due_ns, sent_ns)
    try:
        await socket.send(ping(number))
    except (ConnectionClosed, OSError) as error:
        del connection.pending[number]
        connection.unsent += 1
        _record_close(trial, connection, error)
        return False
    trial.writes += 1
    if isinstance(trial.assignment.load, LoadOpen):
        trial.recorder.record("delay_ns", max(0, sent_ns - due_ns), sent_ns)
    return True


async def _handle_messages(trial: Trial, socket: AsyncSocket, connection: Connection) -> None:
    try:
        while True:
            _handle_message(trial, connection, await socket.recv())
    except (ConnectionClosed, OSError) as error:
        _record_close(trial, connection, error)


def _handle_message(trial: Trial, connection: Connection, data: str | bytes) -> None:
    """Counts a message from the service; records the latency if it is an expected pong."""
    now_ns = monotonic_ns()
    connection.bytes_received += frame_bytes(len(data), masked=False)
    number = pong_number(data) if isinstance(data, str) else None
    if number is None:
        return
    sent = connection.pending.pop(number, None)
    if sent is None:
        trial.duplicates += 1
        return
    due_ns, sent_ns = sent
    connection.replies += 1
    trial.recorder.record("response_ns", now_ns - due_ns, now_ns)
    trial.recorder.record("service_ns", now_ns - sent_ns, now_ns)


def _record_close(trial: Trial, connection: Connection, error: Exception) -> None:
    if connection.open:
        connection.open = False
        code = error.rcvd.code if isinstance(error, ConnectionClosed) and error.rcvd else None
        trial.closed_early[closed_reason(code)] += 1
