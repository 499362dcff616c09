"""Connections: their handshake as the protocol wants it (docs/PROTOCOL.md), their books, and how they ended."""

import asyncio
import errno
import json
from dataclasses import dataclass, field
from typing import Any

from bench_format.schemas import Message, WorkerBook
from websockets.asyncio.client import ClientConnection as AsyncSocket
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection as SyncSocket
from websockets.sync.client import connect as connect_sync

from .payload import FIRST_SEQUENCE

HANDSHAKE_SECONDS = 15.0
CLOSE_SECONDS = 2.0
LARGEST_MESSAGE_BYTES = 1 << 20
HELLO = '{"p":{"client_version":"wse-py-bench/0.1.0","protocol_version":1},"t":"client_hello"}'
# Connections that share one source address: the kernel's default range of ports has 28 232.
CONNECTIONS_PER_ADDRESS = 28_000


class ConnectError(Exception):
    """Why a connection didn't open; the text is the reason under which it is counted."""


@dataclass
class Connection:
    """One connection and its books."""

    id: str
    next: int = FIRST_SEQUENCE
    unsent: int = 0
    replies: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    open: bool = True
    # For whoever waits for an answer: number → (when it was due, when it was sent), in nanoseconds.
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def offered(self) -> int:
        """Numbered messages that were handed to the library."""
        return self.next - FIRST_SEQUENCE

    def book(self, *, numbered: bool) -> WorkerBook:
        """Its books after the drain. Numbers rise by one, so their sum follows from their count."""
        sent = self.offered - self.unsent
        total = sent * FIRST_SEQUENCE + sent * (sent - 1) // 2 if numbered else 0
        # The greeting is the one message without a number.
        return WorkerBook(self.id, sent, total % 2**64, unnumbered=1, replies=self.replies)


@dataclass(frozen=True)
class Target:
    """Where and as whom to connect."""

    address: str
    token: str
    message: Message

    @property
    def url(self) -> str:
        """Servers encode for a connection what its query asks for."""
        first = "format=msgpack" if self.message.format == "msgpack" else "compression=false"
        return f"ws://{self.address}/wse?{first}&protocol_version=1"

    def options(self) -> dict[str, Any]:
        """What every handshake has."""
        return {
            "additional_headers": {"Cookie": f"access_token={self.token}"},
            "compression": None,
            "ping_interval": None,
            "open_timeout": HANDSHAKE_SECONDS,
            "close_timeout": CLOSE_SECONDS,
            "max_size": LARGEST_MESSAGE_BYTES,
            "proxy": None,
        }


def open_one(target: Target) -> tuple[SyncSocket, Connection]:
    """A connection that blocks, greeted."""
    try:
        socket: SyncSocket = connect_sync(target.url, **target.options())
        while (found := ready_id(socket.recv(HANDSHAKE_SECONDS))) is None:
            pass
        socket.send(HELLO)
    except (OSError, TimeoutError, WebSocketException) as error:
        raise ConnectError(reason(error)) from error
    return socket, Connection(found)


async def open_many(target: Target, index: int, total: int) -> tuple[AsyncSocket, Connection]:
    """A connection of an event loop, greeted. `index` is its place among `total`."""
    source: dict[str, Any] = {}
    if address := source_address(target, index, total):
        source["local_addr"] = (address, 0)
    try:
        socket: AsyncSocket = await connect_async(target.url, **target.options(), **source)
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            while (found := ready_id(await socket.recv())) is None:
                pass
        await socket.send(HELLO)
    except (OSError, TimeoutError, WebSocketException) as error:
        raise ConnectError(reason(error)) from error
    return socket, Connection(found)


def source_address(target: Target, index: int, total: int) -> str | None:
    """Loopback has many addresses, and each has its own ports."""
    if total <= CONNECTIONS_PER_ADDRESS or not target.address.startswith("127."):
        return None
    return f"127.0.0.{1 + index // CONNECTIONS_PER_ADDRESS}"


def ready_id(data: str | bytes) -> str | None:
    """The connection's id in a `server_ready`; older servers put `WSE` before the JSON."""
    if isinstance(data, bytes):
        return None
    try:
        value = json.loads(data[data.index("{") :])
    except ValueError:
        return None
    if value.get("t") != "server_ready":
        return None
    details = value.get("p", {}).get("details", {})
    return str(details.get("connection_id", ""))


def reason(error: Exception) -> str:
    """A failure as a word that is counted under."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, InvalidStatus):
        return f"http {error.response.status_code}"
    if isinstance(error, ConnectionClosed):
        return closed_reason(error.rcvd.code if error.rcvd else None)
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno)).lower()
    return type(error).__name__


def closed_reason(code: int | None) -> str:
    """How an end is counted; 1006 stands for one without a close frame (RFC 6455, section 7.1.5)."""
    return f"closed {1006 if code is None else code}"


def frame_bytes(payload: int, *, masked: bool) -> int:
    """Bytes of a frame: RFC 6455, section 5.2."""
    header = 2 if payload < 126 else 4 if payload < 65_536 else 10
    return payload + header + (4 if masked else 0)
