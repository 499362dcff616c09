"""The clients of `bench_bystanders.py`: a crowd that pings once a second each, and a flooder. Each is a process.

The crowd's pings are due at times that are fixed beforehand, evenly spread. A latency counts from the due time, so a
client or a server that is late can't hide it.

Usage: bystanders.py {crowd,flooder} HOST:PORT [--connections N] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "services/wse-server"))
from bench_server import token

FIN_TEXT = 0x81
MASKED = 0x80
PING = b'{"t":"ping","p":{"timestamp":1}}'
PONG = b'"t":"PONG"'
FLOOD = b'{"t":"flood","p":{"n":1}}'
# Bytes of one write of the flooder.
FLOOD_BYTES = 64 << 10
# How long the crowd waits for the last answers.
TIMEOUT_SECONDS = 10.0
READ_BYTES = 16 << 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def main(arguments: Sequence[str]) -> int:
    """Prints one line of JSON with what the clients saw; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("role", choices=["crowd", "flooder"])
    parser.add_argument("address", help="HOST:PORT of the service")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(arguments)
    host, port = options.address.rsplit(":", 1)
    address = (host, int(port))
    report = flood(address) if options.role == "flooder" else Crowd(address, options.connections).run(options.seconds)
    print(json.dumps(report), flush=True)
    return 0


def frame(text: bytes) -> bytes:
    """A masked text frame; the mask is zero, so the bytes stay readable."""
    if len(text) > 125:
        raise ValueError(f"the text has {len(text)} bytes: this writes short frames only")
    return struct.pack(">BB", FIN_TEXT, MASKED | len(text)) + bytes(4) + text


def connect(address: tuple[str, int]) -> socket.socket:
    """A connection after the upgrade and the server's first message."""
    client = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = (
        f"GET /wse HTTP/1.1\r\nHost: {address[0]}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
        f"Authorization: Bearer {token(int(time.time()))}\r\n\r\n"
    )
    client.sendall(request.encode())
    received = b""
    while b"server_ready" not in received or not received.endswith(b"}"):
        chunk = client.recv(READ_BYTES)
        if not chunk:
            raise ConnectionError(f"the server refused a client: {received[:200]!r}")
        received += chunk
    return client


class Crowd:
    """Connections that ping once a second each."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self.clients = [connect(address) for _ in range(count)]
        self.poll = select.epoll()
        for client in self.clients:
            client.setblocking(False)
            self.poll.register(client, select.EPOLLIN)
        self.numbers = {client.fileno(): number for number, client in enumerate(self.clients)}
        self.due: list[deque[int]] = [deque() for _ in self.clients]
        self.latencies: list[int] = []
        self.lateness: list[int] = []
        self.disconnected: set[int] = set()

    def run(self, seconds: float) -> dict[str, object]:
        """Pings for `seconds`, waits for the last answers, and returns what was seen."""
        count, message = len(self.clients), frame(PING)
        total = int(count * seconds)
        start = time.monotonic_ns() + 1_000_000
        end = start + int((seconds + TIMEOUT_SECONDS) * 1e9)
        sent = 0
        while sent < total or (any(self.due) and time.monotonic_ns() < end):
            now = time.monotonic_ns()
            while sent < total and (due := start + sent * 1_000_000_000 // count) <= now:
                self.ping(sent % count, due, now, message)
                sent += 1
            wait = (start + sent * 1_000_000_000 // count - now) / 1e9 if sent < total else 0.1
            self.read(max(wait, 0.0))
        unanswered = sum(len(due) for due in self.due)
        late = percentile(self.lateness, 0.99)
        at = {f"p{name}_us": percentile(self.latencies, part) / 1e3 for name, part in (("50", 0.5), ("99", 0.99))}
        worst = max(self.latencies, default=0) / 1e3
        return {
            **at,
            "max_us": worst,
            "generator_late_p99_us": late / 1e3,
            "answered": len(self.latencies),
            "unanswered": unanswered,
            "disconnected": len(self.disconnected),
        }

    def ping(self, number: int, due: int, now: int, message: bytes) -> None:
        """Sends one ping. A client that was disconnected sends none and counts as unanswered."""
        self.due[number].append(due)
        self.lateness.append(now - due)
        try:
            self.clients[number].send(message)
        except OSError:
            self.disconnected.add(number)

    def read(self, wait: float) -> None:
        """Reads what has arrived, and matches pongs with pings, which have the same order."""
        for descriptor, _ in self.poll.poll(wait):
            number = self.numbers[descriptor]
            try:
                received = self.clients[number].recv(READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                received = b""
            if not received:
                self.disconnected.add(number)
                self.poll.unregister(descriptor)
                continue
            now = time.monotonic_ns()
            # A pong is shorter than a segment, and its socket is idle otherwise: it isn't split.
            for _ in range(min(received.count(PONG), len(self.due[number]))):
                self.latencies.append(now - self.due[number].popleft())


def percentile(values: Sequence[int], part: float) -> float:
    """The smallest value that at least this part of all values doesn't exceed; 0 without values."""
    ordered = sorted(values)
    return float(ordered[min(int(len(ordered) * part), len(ordered) - 1)]) if ordered else 0.0


def flood(address: tuple[str, int]) -> dict[str, object]:
    """Sends as fast as the server reads, until standard input closes."""
    # The flooder and the crowd share a CPU: the latency of the crowd is the server's, not that of its own schedule.
    os.nice(10)
    client = connect(address)
    client.settimeout(0.5)
    stopping = threading.Event()
    threading.Thread(target=wait_for_end, args=[stopping], daemon=True).start()
    print("flooding", flush=True)
    message = frame(FLOOD)
    block = message * (FLOOD_BYTES // len(message))
    sent, is_disconnected = 0, False
    while not stopping.is_set():
        try:
            sent += client.send(block[sent % len(block) :])
        except TimeoutError:
            continue
        except OSError:
            is_disconnected = True
            break
    return {"bytes": sent, "disconnected": int(is_disconnected)}


def wait_for_end(stopping: threading.Event) -> None:
    """Sets the event when standard input closes."""
    sys.stdin.read()
    stopping.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
