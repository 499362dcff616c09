"""A WebSocket service that only a plan describes, and that attacks the worker that loads it."""

import base64
import hashlib
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hostile.peers import BINARY, PING, TEXT, frame

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SECONDS_BETWEEN_BYTES = 0.1
"""Of a response to the upgrade that never ends."""
LARGEST = 16 << 20
"""Bytes that a frame, a message or an inflated message may have in a worker."""
COMPRESSED = 0x40
"""The bit of a frame whose message is compressed."""


@dataclass(frozen=True)
class Attack:
    """What the service sends once the load has begun, over and over, and why the worker then ends the connection."""

    name: str
    frames: Callable[[], Iterator[bytes]]
    reason: str | None
    """The key in results; None where the worker can go on, because the messages are only wrong replies."""


def deflated(message: bytes, times: int = 1) -> bytes:
    """A compressed message (RFC 7692) of a text that is repeated; each piece can stand behind any other."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = compressor.compress(message) + compressor.flush(zlib.Z_FULL_FLUSH)
    return (piece * times)[:-4]


def compressed(payload: bytes) -> bytes:
    """A frame with a compressed message."""
    plain = frame(TEXT, payload, masked=False)
    return bytes([plain[0] | COMPRESSED]) + plain[1:]


def huge_frames() -> Iterator[bytes]:
    yield frame(BINARY, b"", masked=False, declared=LARGEST + 1)


def a_frame_of_an_exabyte() -> Iterator[bytes]:
    yield frame(BINARY, b"", masked=False, declared=1 << 60)


def endless_fragments() -> Iterator[bytes]:
    yield frame(TEXT, b"x", masked=False, final=False)
    part = frame(0, b"x" * 60_000, masked=False, final=False)
    while True:
        yield part


def deep_json() -> Iterator[bytes]:
    deep = b"[" * 100 + b"1" + b"]" * 100
    for _ in range(50):
        yield frame(TEXT, b'{"a":' + deep + b',"id":0}', masked=False)
    yield frame(TEXT, b"[" * 100_000, masked=False)


def a_bomb_of_a_gibibyte() -> Iterator[bytes]:
    yield compressed(deflated(bytes(1 << 20), 1 << 10))


def bombs_within_the_bound() -> Iterator[bytes]:
    bomb = compressed(deflated(bytes(1 << 20), (LARGEST >> 20) - 1))
    for _ in range(20):
        yield bomb


def a_bomb_in_fragments() -> Iterator[bytes]:
    bomb = deflated(bytes(1 << 20), 64)
    first = frame(TEXT, bomb[:10], masked=False, final=False)
    yield bytes([first[0] | COMPRESSED]) + first[1:]
    yield frame(PING, b"are you there", masked=False)
    yield frame(0, bomb[10:], masked=False)


def no_compressed_message() -> Iterator[bytes]:
    # A block of the type that is reserved (RFC 1951, section 3.2.3).
    yield compressed(b"\x07\xff")


ATTACKS = (
    Attack("huge-frames", huge_frames, "protocol"),
    Attack("a-frame-of-an-exabyte", a_frame_of_an_exabyte, "protocol"),
    Attack("endless-fragments", endless_fragments, "protocol"),
    Attack("JSON-100-deep", deep_json, None),
    Attack("a-bomb-of-a-gibibyte", a_bomb_of_a_gibibyte, "deflate_too_long"),
    Attack("bombs-within-the-bound", bombs_within_the_bound, None),
    Attack("a-bomb-in-fragments", a_bomb_in_fragments, "deflate_too_long"),
    Attack("no-compressed-message", no_compressed_message, "deflate_malformed"),
)


class DescribedService:
    """Listens on a free port; each connection is attacked in a thread of its own until the block ends."""

    def __init__(self, attack: Attack | None) -> None:
        self.attack = attack
        """None for handshakes that never end."""
        self.sent = 0
        """Frames, or bytes of responses."""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def __enter__(self) -> "DescribedService":
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def accept(self) -> None:
        """Serves until the listener is closed."""
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer: socket.socket) -> None:
        """Attacks one connection; its end is the worker's business."""
        with peer:
            try:
                key = key_of_upgrade(peer)
                if key is None:
                    return
                if self.attack is None:
                    self.answer_for_ever(peer)
                else:
                    self.attack_when_loaded(peer, key, self.attack)
            except OSError:
                return

    def answer_for_ever(self, peer: socket.socket) -> None:
        """Sends a response byte by byte, whose header never ends."""
        for byte in b"HTTP/1.1 101 Switching Protocols\r\n" + b"X-Filler: x\r\n" * 100_000:
            peer.sendall(bytes([byte]))
            self.sent += 1
            time.sleep(SECONDS_BETWEEN_BYTES)

    def attack_when_loaded(self, peer: socket.socket, key: bytes, attack: Attack) -> None:
        """Upgrades, and sends the attack behind the first message of the load."""
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        lines = (
            b"HTTP/1.1 101 Switching Protocols",
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Extensions: permessage-deflate",
            b"Sec-WebSocket-Accept: " + accept,
        )
        peer.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        peer.recv(1)
        for data in attack.frames():
            peer.sendall(data)
            self.sent += 1
        while peer.recv(1 << 16):
            pass


def key_of_upgrade(peer: socket.socket) -> bytes | None:
    """The key of an upgrade request; None for a peer that only connects."""
    head = b""
    while b"\r\n\r\n" not in head:
        received = peer.recv(4096)
        if not received:
            return None
        head += received
    (key,) = (line.partition(b": ")[2] for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: "))
    return key


def plan(port: int) -> str:
    """A plan that loads the service for a second; JSON is YAML."""
    described = {
        "services": {"hostile": {"url": f"ws://127.0.0.1:{port}/", "version": "1"}},
        "connect": {"deflate": {"compress_sent": True}},
        "messages": [{"text": "m {{sequence}}"}],
        "reply": {"by": "sequence", "value": {"json": "/id"}},
    }
    return json.dumps(
        {
            "schema": 3,
            "name": "described",
            "why": "a service that attacks its worker costs its own trial at most",
            "seed": 1,
            "services": ["hostile"],
            "warmup_seconds": 0,
            "window_seconds": 2,
            "drain_seconds": 1,
            "validity": {"delay_p99_ms": 1000, "worker_cpu_share": 1, "start_skew_ms": 1000, "send_share": 0.1},
            "websocket": described,
            "ladders": [{"workload": "request-reply", "tiers": [4], "load": {"model": "closed"}}],
        }
    )
