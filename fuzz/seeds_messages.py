"""Seeds of the targets that parse messages of clients, users, applications and Redis."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from seed_values import BINARY, CLOSE, HELLO, PING, PONG, TEXT, Seeds, compact, packed, two, websocket

# The generator of P-256, uncompressed, in base64.
GENERATOR = "BGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfU="


def encrypted() -> Seeds:
    def hello(key: str, requests_encryption: bool = True) -> dict[str, Any]:
        payload = {"protocol_version": 1, "features": {"encryption": requests_encryption}, "encryption_public_key": key}
        return {"t": "client_hello", "p": payload}

    return {
        "hello": compact(hello(GENERATOR)),
        "hello-not-wanted": compact(hello(GENERATOR, requests_encryption=False)),
        "hello-packed": packed(hello(GENERATOR)),
        "hello-short-key": compact(hello("BGsX")),
        "hello-no-base64": compact(hello("!!!")),
        "key": GENERATOR.encode(),
        "key-off-the-curve": b"B" + b"A" * 86 + b"=",
        "nothing": b"",
    }


def encrypted_frames() -> Seeds:
    sealed = b"E:" + bytes(8) + bytes(16)
    frames = websocket(TEXT, b"{}") + websocket(PONG, b"x") + websocket(BINARY, bytes(300)) + websocket(CLOSE)
    return {
        "frames": two(b"hello", frames),
        "sealed-with-the-first-number": two(sealed, b""),
        "sealed-with-another-number": two(b"E:" + b"\xff" * 8 + bytes(17), websocket(TEXT, b"{}")),
        "too-short": two(b"E:" + bytes(8), websocket(TEXT, b"cut off")[:-1]),
        "fragments": two(b"", websocket(TEXT, b"a", last=False) + websocket(0, b"b")),
        "unknown-opcode": two(b"plain", websocket(3, b"x") + websocket(PING)),
        "nothing": b"",
    }


def event() -> Seeds:
    return {
        "empty": b"{}",
        "usual": compact({"t": "trade", "p": {"price": 1.5, "of": ["a", None, True]}}),
        "all-given": compact(
            {"c": "S", "id": "1", "p": {}, "pri": 8, "seq": 1, "t": "x", "ts": "2026-01-01T00:00:00.000Z"}
        ),
        "wrong-types": compact({"c": 1, "id": 2, "seq": "3", "t": None, "ts": []}),
        "category-of-the-protocol": compact({"t": "server_hello"}),
        "numbers": b'{"p":[0,-1,9223372036854775807,18446744073709551615,-9223372036854775808,1e308,5e-324]}',
        "escapes": rb'{"t":"\u00e9\ud83d\ude00\n\"","p":{"\u0000":""}}',
        "snapshot": compact({"t": "room_snapshot", "p": {"members": {}}}),
    }


def inflate() -> Seeds:
    text = compact({"t": "trade", "p": {"text": "again and " * 20}})
    stream = zlib.compress(text)
    return {
        "deflated": stream,
        "stored": zlib.compress(text, 0),
        "fixed-codes": zlib.compress(b"a"),
        "nothing": zlib.compress(b""),
        "as-much-as-may-be": zlib.compress(bytes(4096)),
        "a-byte-too-much": zlib.compress(bytes(4097)),
        "bomb": zlib.compress(bytes(1 << 20)),
        "cut-off": stream[:-5],
        "wrong-checksum": stream[:-1] + bytes([stream[-1] ^ 1]),
        "something-behind-it": stream + b"more",
        "two": stream * 2,
        "plain-text": text,
    }


def json_scan() -> Seeds:
    return {
        "short-name": compact({"t": "trade", "p": {"a": 1}}),
        "long-name": compact({"type": "trade", "payload": {}}),
        "both-names": b'{"type":"long","t":"short"}',
        "inside": b'{"p":{"t":"ping","s":"}{\\"t\\":"},"t":"trade"}',
        "type-that-is-no-text": b'{"t":1,"type":"trade"}',
        "escapes": rb'{"\"t":"x","t":"a\\\"b"}',
        "unicode-escape": rb'{"\u0074":"x"}',
        "spaces": b'{ \n"p" : [ 1 , { "t" : "y" } ] ,\t"t" : "x" }',
        "prefixed": b'WSE{"c":"WSE","t":"ping","p":{"timestamp":123},"v":1}',
        "hello": compact(HELLO),
        "pong": b'{"c":"WSE","t":"PONG","p":{},"v":1}',
        "has-a-category": b'{"c":"U","t":"x"}',
        "empty": b"{}",
        "cut-off": b'{"t":"tra',
        "array": b"[1,2]",
        "beyond-ascii": '{"é😀":"t","t":"ü"}'.encode(),
    }


def msgpack() -> Seeds:
    deep = {"t": "x", "p": "y"}
    return {
        "message": packed({"t": "trade", "p": {"a": 1, "b": 2.5, "c": [1, "x", None, True]}}),
        "long-name": packed({"type": "trade", "payload": {}}),
        "inside": packed({"p": {"t": "ping"}, "t": "trade"}),
        "type-that-is-no-text": packed({"t": 1, "type": "x"}),
        "as-deep-as-may-be": b"\x91" * 64 + b"\xc0",
        "too-deep": b"\x91" * 65 + b"\xc0",
        "long-forms": b"\xde\x00\x01\xda\x00\x01t\xdb\x00\x00\x00\x01x",
        "numbers": b"\x9a\xcc\xff\xcd\xff\xff\xce\xff\xff\xff\xff\xcf" + b"\xff" * 8 + b"\xd0\x80\xd1\x80\x00"
        b"\xd2\x80\x00\x00\x00\xd3\x80" + bytes(7) + b"\xca\x7f\x80\x00\x00\xe0",
        "bytes-and-extensions": b"\x96\xc4\x01a\xc5\x00\x01b\xd4\x01c\xd6\xff\x00\x00\x00\x00\xc7\x01\x05d\xc0",
        "length-that-lies": b"\xdd\xff\xff\xff\xff",
        "cut-off": packed(deep)[:-1],
        "no-marker": b"\xc1",
        "json-message": compact({"t": "trade", "p": [deep, {"type": "y"}]}),
        "json-too-deep": b"[" * 65 + b"]" * 65,
    }


def presence_data() -> Seeds:
    def payload(user: str, data: bytes) -> bytes:
        name = user.encode()
        return name + data + bytes([len(name)])

    return {
        "usual": payload("ann", compact({"name": "Ann", "status": "away"})),
        "nothing": payload("ann", b"null"),
        "nobody": payload("", b"{}"),
        "spaces": payload("ann", b' { "a" : [ 1 , 2.50 ] } '),
        "names-with-quotes": payload('a"\\\n', rb'"\"\\\u0000"'),
        "as-long-as-may-be": payload("a", b'"' + b"x" * 252 + b'"'),
        "too-long": payload("u", b'"' + b"x" * 253 + b'"')[:256],
        "numbers": payload("ann", b"[1e400,-0.0,1E2,18446744073709551616]"),
        "no-json": payload("ann", b"{a:1}"),
        "two-values": payload("ann", b"{}{}"),
    }


def recovery_position() -> Seeds:
    # Published messages, epoch, offset, whether the client knows the epoch, and the most messages that it accepts.
    def recovery_request(
        published: int, offset: int, *, epoch: int = 0, knows: bool = True, maximum: int = 255
    ) -> bytes:
        return struct.pack("<BIqBB", published, epoch, offset, knows, maximum)

    return {
        "all": recovery_request(5, -1),
        "some": recovery_request(5, 2),
        "nothing-new": recovery_request(5, 4),
        "what-is-to-come": recovery_request(5, 5),
        "the-oldest-that-is-kept": recovery_request(40, 23),
        "one-too-old": recovery_request(40, 22),
        "more-than-may-be": recovery_request(16, -1, maximum=15),
        "another-epoch": recovery_request(5, 2, epoch=1, knows=False),
        "empty-topic": recovery_request(0, -1),
        "smallest-offset": recovery_request(5, -(1 << 63)),
        "largest-offset": recovery_request(5, (1 << 63) - 1),
    }


def redis_message() -> Seeds:
    def array(*parts: bytes | int) -> bytes:
        def element(part: bytes | int) -> bytes:
            return b":%d\r\n" % part if isinstance(part, int) else b"$%d\r\n%s\r\n" % (len(part), part)

        return b"*%d\r\n" % len(parts) + b"".join(map(element, parts))

    def header(flags: int, *parts: bytes) -> bytes:
        return bytes([1, flags]) + struct.pack("<Q", 7) + b"".join(parts)

    number, stamp = struct.pack("<Q", 9), struct.pack("<Iq", 3, 4)
    text = compact({"t": "news"})
    return {
        "message": array(b"message", b"wse:news", text),
        "message-with-all": array(b"message", b"wse:news", header(3, number, stamp) + text),
        "message-numbered": array(b"message", b"wse:news", header(1, number) + text),
        "message-by-pattern": array(b"pmessage", b"wse:n*", b"wse:news", header(0) + text),
        "subscribed": array(b"subscribe", b"wse:news", 1) + array(b"punsubscribe", b"wse:n*", 0),
        "answers": b"+OK\r\n-ERR unknown command\r\n:42\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n",
        "two-and-a-half": array(b"message", b"c", b"1") * 2 + array(b"message", b"c", b"2")[:-3],
        "nested-too-deep": b"*1\r\n" * 5 + b":1\r\n",
        "length-that-lies": b"$999999999\r\nx",
        "no-number": b"$x\r\n",
        "header": header(2, stamp) + text,
        "header-cut-off": header(3, number),
        "header-of-another-version": header(4),
        "http": b"HTTP/1.1 400 Bad Request\r\n",
    }
