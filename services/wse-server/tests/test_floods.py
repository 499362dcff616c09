"""Clients that try to exhaust the server: memory and descriptors stay within their limits, and others are served.

The service is a separate process with the default limits; its usage is read from the kernel.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from harness import message, wait_until
from service import Service

from bench_server import token

MEBIBYTE = 1 << 20
# The engine's defaults (`_wse_accel.pyi`).
PENDING_HANDSHAKES = 4096
OUTBOUND_MEBIBYTES = 256
PARTIAL_MEBIBYTES = 64
# Further descriptors and memory of a service: threads, arenas, the interpreter.
OTHER_DESCRIPTORS = 100
FEW_DESCRIPTORS = 256
OTHER_MEBIBYTES = 100
MASK = b"\x01\x02\x03\x04"
# How long sockets may accept nothing, in seconds: before a flood counts as held back, and while an application takes
# what was sent before.
HELD_BACK_SECONDS = 0.5
PATIENCE_SECONDS = 30


class FewDescriptors(Service):
    """A service with a low limit of open descriptors."""

    launcher = ("prlimit", f"--nofile={FEW_DESCRIPTORS}")


@pytest.fixture
def service() -> Iterator[Service]:
    """A service with the engine's default limits."""
    service = Service("--max-connections", "8000", "--delivery", "batch")
    yield service
    service.kill()


@pytest.fixture
def sockets() -> Iterator[Callable[[Service], socket.socket]]:
    """Opens connections with small buffers, so that data they send, or don't read, must be held by the server."""
    with ExitStack() as stack:

        def open_one(service: Service) -> socket.socket:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
            host, port = service.ready["address"].rsplit(":", 1)
            client.settimeout(10)
            client.connect((host, int(port)))
            return client

        yield open_one


def upgraded(client: socket.socket) -> socket.socket:
    """Upgrades a connection; nothing more is read from it."""
    client.sendall(
        b"GET /wse HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Authorization: Bearer " + token(int(time.time())).encode() + b"\r\n\r\n"
    )
    assert client.recv(12) == b"HTTP/1.1 101"
    client.setblocking(False)
    return client


def frame(opcode: int, length: int, fill: bytes = b"\0") -> bytes:
    """A masked frame of a client; `fill`, repeated, is the payload before unmasking."""
    if length < 126:
        header = struct.pack(">BB", 0x80 | opcode, 0x80 | length)
    elif length < 1 << 16:
        header = struct.pack(">BBH", 0x80 | opcode, 0xFE, length)
    else:
        header = struct.pack(">BBQ", 0x80 | opcode, 0xFF, length)
    return header + MASK + (fill * length)[:length]


def push(clients: list[socket.socket], bytes_each: bytes, quiet_seconds: float = HELD_BACK_SECONDS) -> int:
    """Sends from all clients in turn until all is sent or none can send more; returns the number of bytes."""
    sent = [0] * len(clients)
    view, quiet_since = memoryview(bytes_each), time.monotonic()
    while time.monotonic() - quiet_since < quiet_seconds and min(sent) < len(view):
        for index, client in enumerate(clients):
            try:
                more = client.send(view[sent[index] : sent[index] + (64 << 10)]) if sent[index] < len(view) else 0
            except BlockingIOError:
                continue
            except ConnectionError:
                # The server closed the connection because of this.
                sent[index] = len(view)
                continue
            if more:
                sent[index] += more
                quiet_since = time.monotonic()
    return sum(sent)


def is_served(service: Service) -> bool:
    """Whether a well-behaved client is accepted and gets a reply soon."""
    started = time.monotonic()
    with service.connect() as client:
        client.send('{"t":"ping","p":{"timestamp":1}}')
        # The server's own ping may come first.
        while message(client)["t"] != "PONG":
            pass
    return time.monotonic() - started < 2


@pytest.mark.parametrize(
    "words", [b"GET /wse HTTP/1.1\r\nX-Slow: ", b"GET / HTTP/1.1\r\n\r\n"], ids=["slow", "refused"]
)
def test_requests_that_never_end_are_evicted_for_others(
    service: Service, sockets: Callable[[Service], socket.socket], words: bytes
) -> None:
    count = PENDING_HANDSHAKES + 1500
    for _ in range(count):
        sockets(service).sendall(words)
    wait_until(lambda: sum(service.get("/stats")["connections"]["rejected"].values()) >= count - PENDING_HANDSHAKES)
    assert service.descriptors() <= PENDING_HANDSHAKES + OTHER_DESCRIPTORS
    assert service.rss_mebibytes() < OTHER_MEBIBYTES
    assert is_served(service)


def test_metrics_are_served_when_clients_have_taken_every_descriptor(
    sockets: Callable[[Service], socket.socket],
) -> None:
    service = FewDescriptors("--max-connections", "8000")
    try:
        open_clients = [upgraded(sockets(service))]
        while service.get("/stats")["connections"]["rejected"].get("full", 0) == 0:
            assert len(open_clients) < FEW_DESCRIPTORS
            client = sockets(service)
            open_clients.append(client)
            with suppress(ConnectionError, AssertionError, TimeoutError):
                upgraded(client)
        stats = service.get("/stats")["connections"]
        # Many were accepted, and some descriptors are left.
        assert FEW_DESCRIPTORS / 2 < stats["open"] < FEW_DESCRIPTORS - 32
        for client in open_clients:
            client.close()
        assert is_served(service)
    finally:
        service.kill()


def test_silent_connections_cost_nothing(service: Service, sockets: Callable[[Service], socket.socket]) -> None:
    silent = [sockets(service) for _ in range(PENDING_HANDSHAKES + 1500)]
    assert service.descriptors() <= PENDING_HANDSHAKES + OTHER_DESCRIPTORS
    assert is_served(service)
    assert service.rss_mebibytes() < OTHER_MEBIBYTES
    assert len(silent) > PENDING_HANDSHAKES


HELLO = b'{"t":"client_hello"}'
FLOODS = {
    # Replies as long as the requests, and replies thirty times as long.
    "pings": frame(9, 125) * (4 * MEBIBYTE // 131),
    "hellos": (struct.pack(">BB", 0x81, 0x80 | len(HELLO)) + bytes(4) + HELLO) * (MEBIBYTE // 104),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_replies_to_clients_that_never_read_are_bounded(
    service: Service, sockets: Callable[[Service], socket.socket], flood: str
) -> None:
    clients = [upgraded(sockets(service)) for _ in range(300 if flood == "pings" else 160)]
    before = service.rss_mebibytes()
    pushed = push(clients, FLOODS[flood])
    growth_mebibytes = service.rss_mebibytes() - before
    print(f"pushed {pushed / MEBIBYTE:.0f} MiB, grown by {growth_mebibytes:.0f} MiB")
    # In addition to the limit: one read and its replies.
    assert growth_mebibytes < 1.5 * OUTBOUND_MEBIBYTES + OTHER_MEBIBYTES
    assert service.get("/stats")["connections"]["closed"].get("protocol") is None
    assert is_served(service)


def test_a_mebibyte_from_each_of_five_thousand_connections_is_not_buffered_at_once(
    service: Service, sockets: Callable[[Service], socket.socket]
) -> None:
    clients = [upgraded(sockets(service)) for _ in range(5000)]
    before = service.rss_mebibytes()
    # All but the last byte, so that no message is ever complete.
    pushed = push(clients, frame(2, MEBIBYTE)[:-1])
    growth_mebibytes = service.rss_mebibytes() - before
    print(f"pushed {pushed / MEBIBYTE:.0f} MiB, grown by {growth_mebibytes:.0f} MiB")
    # Each connection may hold 32 KiB of a frame without a reservation, and as much again in its last short read.
    assert growth_mebibytes < PARTIAL_MEBIBYTES + 5000 * 64 / 1024 + OTHER_MEBIBYTES
    assert is_served(service)


def test_parts_of_messages_are_not_buffered_at_once_either(
    service: Service, sockets: Callable[[Service], socket.socket]
) -> None:
    clients = [upgraded(sockets(service)) for _ in range(2000)]
    before = service.rss_mebibytes()
    first, more = bytearray(frame(2, 4096)), bytearray(frame(0, 4096))
    first[0], more[0] = 0x02, 0x00
    pushed = push(clients, bytes(first + more * 200))
    growth_mebibytes = service.rss_mebibytes() - before
    print(f"pushed {pushed / MEBIBYTE:.0f} MiB, grown by {growth_mebibytes:.0f} MiB")
    assert growth_mebibytes < 2 * PARTIAL_MEBIBYTES + 2000 * 128 / 1024 + OTHER_MEBIBYTES
    assert service.get("/stats")["connections"]["closed"].get("protocol") is None
    assert is_served(service)


def test_many_large_messages_at_once_are_delayed_and_none_is_lost(
    service: Service, sockets: Callable[[Service], socket.socket]
) -> None:
    # Four times what may be reserved at once, all from well-behaved clients.
    clients = [upgraded(sockets(service)) for _ in range(4 * PARTIAL_MEBIBYTES)]
    before = service.rss_mebibytes()
    large_message = frame(2, MEBIBYTE)
    assert push(clients, large_message, PATIENCE_SECONDS) == len(clients) * len(large_message)
    wait_until(lambda: service.get("/stats")["application"]["delivered"] == len(clients))
    assert service.get("/stats")["connections"]["closed"] == {}
    assert service.rss_mebibytes() - before < 3 * PARTIAL_MEBIBYTES + OTHER_MEBIBYTES


def test_an_unread_echo_is_bounded_too(sockets: Callable[[Service], socket.socket]) -> None:
    service = Service("--echo")
    try:
        clients = [upgraded(sockets(service)) for _ in range(400)]
        before = service.rss_mebibytes()
        pushed = push(clients, frame(2, 16 << 10) * 256)
        growth_mebibytes = service.rss_mebibytes() - before
        print(f"pushed {pushed / MEBIBYTE:.0f} MiB, grown by {growth_mebibytes:.0f} MiB")
        assert growth_mebibytes < 2 * OUTBOUND_MEBIBYTES + OTHER_MEBIBYTES
        assert service.get("/stats")["connections"]["closed"].get("protocol") is None
    finally:
        service.kill()
