"""`throughput`, `size-matrix`, `format-comparison`: every connection sends as fast as its socket takes it.

There are two implementations, as in the published Python clients: one blocking connection per process, and many
connections in one event loop. Both send one message per write.
"""

import asyncio

from websockets.asyncio.client import ClientConnection as AsyncSocket
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection as SyncSocket

from .clock import NS_PER_SECOND, monotonic_ns, wait_until
from .connection import Connection, frame_bytes
from .payload import Composer, composer, payload_bytes
from .trial import Trial

# Messages between two readings of the clock: about 200 µs of sending.
BURST = 16
# Bytes that the event loop's transport buffers before a sender must wait: one burst of ordinary messages.
WRITE_LIMIT = 4096


def flood_blocking(trial: Trial, socket: SyncSocket) -> None:
    """Floods one connection, which blocks until the kernel accepts each message."""
    (connection,) = trial.connections
    message_composer = composer(trial.assignment.message)
    wait_until(trial.start_ns)
    _send_until(trial.window_start_ns, trial, connection, socket, message_composer)
    trial.mark()
    _send_until(trial.window_end_ns, trial, connection, socket, message_composer)
    trial.mark()


def _send_until(
    end_ns: int, trial: Trial, connection: Connection, socket: SyncSocket, message_composer: Composer
) -> None:
    send, compose, text = socket.send, message_composer.compose, message_composer.text
    while connection.open and monotonic_ns() < end_ns:
        first_sequence = connection.next_sequence
        try:
            for sequence in range(first_sequence, first_sequence + BURST):
                message = compose(sequence)
                connection.next_sequence = sequence + 1
                send(message, text=text)
        except (ConnectionClosed, OSError):
            # It is unknown how much of the last message was sent.
            connection.unsent += 1
            connection.open = False
        trial.writes += connection.next_sequence - first_sequence
    if not connection.open:
        wait_until(end_ns)


async def flood_async(trial: Trial, sockets: list[AsyncSocket]) -> None:
    """Floods many connections in one event loop."""
    for socket in sockets:
        socket.transport.set_write_buffer_limits(high=WRITE_LIMIT)
    message_composer = composer(trial.assignment.message)
    frame = frame_bytes(payload_bytes(trial.assignment.message), masked=True)
    senders = [
        asyncio.create_task(_flood_connection(trial, socket, connection, message_composer))
        for socket, connection in zip(sockets, trial.connections, strict=True)
    ]

    def unwritten_messages() -> int:
        return sum(-(-socket.transport.get_write_buffer_size() // frame) for socket in sockets)

    for edge_ns in (trial.window_start_ns, trial.window_end_ns):
        await asyncio.sleep(max(0, edge_ns - monotonic_ns()) / NS_PER_SECOND)
        trial.mark(unwritten_messages())
    # A sender that waits for its socket gets the drain time; messages that it still holds then are unsent.
    _, blocked = await asyncio.wait(senders, timeout=trial.assignment.drain_ns / NS_PER_SECOND)
    for sender in blocked:
        sender.cancel()
    await _drain_buffers(trial, sockets)


async def _flood_connection(
    trial: Trial, socket: AsyncSocket, connection: Connection, message_composer: Composer
) -> None:
    try:
        while monotonic_ns() < trial.window_end_ns:
            for sequence in range(connection.next_sequence, connection.next_sequence + BURST):
                message = message_composer.compose(sequence)
                connection.next_sequence = sequence + 1
                await socket.send(message, text=message_composer.text)
            trial.writes += BURST
            # A send that doesn't wait doesn't yield to other tasks.
            await asyncio.sleep(0)
    except (ConnectionClosed, OSError):
        connection.unsent += 1


async def _drain_buffers(trial: Trial, sockets: list[AsyncSocket]) -> None:
    """Waits until the kernel has accepted everything; the rest at the deadline is unsent."""
    frame = frame_bytes(payload_bytes(trial.assignment.message), masked=True)
    for socket, connection in zip(sockets, trial.connections, strict=True):
        while (buffered := socket.transport.get_write_buffer_size()) and monotonic_ns() < trial.deadline_ns:
            await asyncio.sleep(0.005)
        connection.unsent += -(-buffered // frame)
