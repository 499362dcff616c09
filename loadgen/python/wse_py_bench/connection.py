"""Connections: their handshake (docs/PROTOCOL.md), their books, and the reasons for which they fail or close."""

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
# Most connections from one source address: the kernel's default range has 28 232 ports.
CONNECTIONS_PER_ADDRESS = 28_000


class ConnectError(Exception):
    """A connection didn't open; the text is the reason under which the failure is counted."""


@dataclass
class Connection:
    """The state and counters of one connection."""

    id: str
    next_sequence: int = FIRST_SEQUENCE
    unsent: int = 0
    replies: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    open: bool = True
    # Pings without a reply so far: number → (due, sent), in nanoseconds of the monotonic clock.
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def offered(self) -> int:
        """Number of numbered messages that were handed to the library."""
        return self.next_sequence - FIRST_SEQUENCE

    def book(self, *, numbered: bool) -> WorkerBook:
        """The connection's books after the drain. Numbers are consecutive, so their sum follows from their count."""
        sent = self.offered - self.unsent
        total = sent * FIRST_SEQUENCE + sent * (sent - 1) // 2 if numbered else 0
        # `client_hello` is the only message without a number.
        return WorkerBook(self.id, sent, total % 2**64, unnumbered=1, replies=self.replies)


@dataclass(frozen=True)
class Target:
    """The address, the token and the message format of connections."""

    address: str
    token: str
    message: Message

    @property
    def url(self) -> str:
        """The URL; its query selects the format in which the server sends."""
        first = "format=msgpack" if self.message.format == "msgpack" else "compression=false"
        return f"ws://{self.address}/wse?{first}&protocol_version=1"

    def options(self) -> dict[str, Any]:
        """The library's options for every handshake: the token as a cookie, no compression, no automatic pings."""
        return {
            "additional_headers": {"Cookie": f"access_token={self.token}"},
            "compression": None,
            "ping_interval": None,
            "open_timeout": HANDSHAKE_SECONDS,
            "close_timeout": CLOSE_SECONDS,
            "max_size": LARGEST_MESSAGE_BYTES,
            "proxy": None,
        }


def open_blocking(target: Target) -> tuple[SyncSocket, Connection]:
    """Opens a blocking connection, waits for `server_ready` and sends `client_hello`. Raises `ConnectError`."""
    try:
        socket: SyncSocket = connect_sync(target.url, **target.options())
        while (connection_id := ready_id(socket.recv(HANDSHAKE_SECONDS))) is None:
            pass
        socket.send(HELLO)
    except (OSError, TimeoutError, WebSocketException) as error:
        raise ConnectError(failure_reason(error)) from error
    return socket, Connection(connection_id)


async def open_async(target: Target, index: int, total: int) -> tuple[AsyncSocket, Connection]:
    """Opens connection number `index` of `total` in an event loop and sends `client_hello`. Raises `ConnectError`."""
    source: dict[str, Any] = {}
    if address := source_address(target, index, total):
        source["local_addr"] = (address, 0)
    try:
        socket: AsyncSocket = await connect_async(target.url, **target.options(), **source)
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            while (connection_id := ready_id(await socket.recv())) is None:
                pass
        await socket.send(HELLO)
    except (OSError, TimeoutError, WebSocketException) as error:
        raise ConnectError(failure_reason(error)) from error
    return socket, Connection(connection_id)


def source_address(target: Target, index: int, total: int) -> str | None:
    """The source address for more connections than one address has ports; loopback has many addresses."""
    if total <= CONNECTIONS_PER_ADDRESS or not target.address.startswith("127."):
        return None
    return f"127.0.0.{1 + index // CONNECTIONS_PER_ADDRESS}"


def ready_id(data: str | bytes) -> str | None:
    """The connection's id in a `server_ready`, else `None`; older servers put `WSE` before the JSON."""
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


def failure_reason(error: Exception) -> str:
    """The reason under which a failed handshake is counted."""
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
    """The reason under which a closed connection is counted; 1006: without a Close frame (RFC 6455, section 7.1.5)."""
    return f"closed {1006 if code is None else code}"


def frame_bytes(payload: int, *, masked: bool) -> int:
    """The size of a frame with header, in bytes (RFC 6455, section 5.2)."""
    header = 2 if payload < 126 else 4 if payload < 65_536 else 10
    return payload + header + (4 if masked else 0)
