"""What hostile peers send, as bytes: handshakes and frames that break rules, from a seed that is printed on failure."""

import base64
import errno
import os
import random
import socket
import struct
import zlib
from collections.abc import Iterator

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def handshake(path: str, *extra: str) -> bytes:
    """A correct upgrade request with additional header lines."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *extra,
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The data with some bytes changed, removed, repeated or cut off."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(result)) if result else 0
        match chance.randrange(5):
            case 0 if result:
                result[at] = chance.randrange(256)
            case 1:
                del result[at : at + chance.randint(1, 20)]
            case 2:
                result[at:at] = result[at : at + chance.randint(1, 40)]
            case 3:
                result[at:at] = chance.choice((b"\0", b"\n", b"\r\n\r\n", b"\r\n ", b":", b" ", b"\xff" * 9))
            case _:
                del result[max(at, 8) :]
    return bytes(result)


def frame(
    opcode: int, payload: bytes, *, final: bool = True, masked: bool = True, declared: int | None = None
) -> bytes:
    """A frame; `declared` is the length in its header where that differs from the payload's."""
    size = len(payload) if declared is None else declared
    head = bytes([(0x80 if final else 0) | opcode])
    flag = 0x80 if masked else 0
    if size < 126:
        head += bytes([flag | size])
    elif size < 1 << 16:
        head += bytes([flag | 126]) + struct.pack(">H", size)
    else:
        head += bytes([flag | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    # A mask of zeros leaves the payload as it is, which makes large frames cheap to build.
    return head + b"\0\0\0\0" + payload


def violations() -> Iterator[tuple[str, bytes]]:
    """Frames that break RFC 6455, each with its name; a server must close the connection for each."""
    yield "not masked", frame(TEXT, b"{}", masked=False)
    yield "reserved bits", bytes([0xF1]) + frame(TEXT, b"{}")[1:]
    yield "unknown opcode", frame(3, b"x")
    yield "unknown control opcode", frame(11, b"x")
    yield "ping longer than 125", frame(PING, b"x" * 126)
    yield "ping in fragments", frame(PING, b"x", final=False)
    yield "continuation without a start", frame(0, b"x")
    yield "start within fragments", frame(TEXT, b"a", final=False) + frame(TEXT, b"b")
    yield "text that is not UTF-8", frame(TEXT, b"\xc3\x28")
    yield "close with one byte", frame(CLOSE, b"\x03")
    yield "close with code 1005", frame(CLOSE, struct.pack(">H", 1005))
    yield "close with a reason that is not UTF-8", frame(CLOSE, struct.pack(">H", 1000) + b"\xff")
    yield "length 2^62", frame(BINARY, b"", declared=1 << 62)
    yield "length 2^63", frame(BINARY, b"", declared=1 << 63)


def bombs() -> Iterator[tuple[str, bytes]]:
    """Messages that are small on the wire and large or deep when decoded."""
    yield "zlib, 64 MiB", b"C:" + zlib.compress(b'{"a":"' + b"x" * (64 << 20) + b'"}', 9)
    yield "zlib in zlib", b"C:" + zlib.compress(zlib.compress(b"\0" * (16 << 20), 9), 9)
    yield "zlib, cut off", b"C:" + zlib.compress(b"x" * (1 << 20), 9)[:-9]
    yield "JSON, 100 000 deep", b'{"t":"x","p":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    yield "JSON, number of 300 000 digits", b'{"t":"x","p":' + b"9" * 300_000 + b"}"
    yield "MessagePack, 100 000 deep", b"\x91" * 100_000 + b"\xc0"
    yield "MessagePack, map of 2^32-1", b"\xdf\xff\xff\xff\xff"
    yield "MessagePack, array of 2^32-1", b"\xdd\xff\xff\xff\xff"
    yield "MessagePack, text of 2^32-1", b"\x81\xa1t\xdb\xff\xff\xff\xff"


def random_frames(chance: random.Random) -> bytes:
    """A few frames with random heads, lengths and payloads."""
    parts = []
    for _ in range(chance.randint(1, 6)):
        payload = chance.randbytes(chance.choice((0, 1, 2, 7, 125, 126, 300)))
        one = frame(chance.randrange(16), payload, final=chance.random() < 0.7, masked=chance.random() < 0.9)
        parts.append(mutated(one, chance) if chance.random() < 0.5 else one)
    return b"".join(parts)


def connected(address: tuple[str, int], timeout: float = 30) -> socket.socket:
    """A TCP connection whose operations give up after `timeout` seconds."""
    return socket.create_connection(address, timeout)


def upgraded(address: tuple[str, int], path: str) -> socket.socket:
    """A connection after its opening handshake; the response was 101."""
    peer = connected(address)
    peer.sendall(handshake(path))
    head = b""
    while b"\r\n\r\n" not in head:
        received = peer.recv(4096)
        assert received, f"closed during the handshake after {head!r}"
        head += received
    assert head.startswith(b"HTTP/1.1 101"), head
    return peer


def wait_for_pong(peer: socket.socket, payload: bytes) -> None:
    """Reads until a pong with this payload comes; fails when the other side closes instead."""
    received = b""
    while bytes([0x80 | PONG, len(payload)]) + payload not in received:
        more = peer.recv(65536)
        assert more, f"closed instead of a pong, after {received!r}"
        received += more


def drained(peer: socket.socket, most: int = 1 << 20) -> bytes:
    """What the other side sends until it closes; raises `TimeoutError` when it doesn't."""
    found = bytearray()
    try:
        while len(found) < most and (received := peer.recv(65536)):
            found += received
    except (ConnectionResetError, BrokenPipeError):
        pass
    return bytes(found)


def sent(peer: socket.socket, data: bytes) -> bool:
    """Sends all of it; false when the other side has closed meanwhile."""
    try:
        peer.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        return False
    return True


def end_of_sending(peer: socket.socket) -> None:
    """Tells the other side that nothing more comes; does nothing when it has closed meanwhile."""
    try:
        peer.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
