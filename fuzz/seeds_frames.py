"""Seeds of the fuzz targets that parse WebSocket frames or frames of the cluster protocol.

Each function is named after its target and returns the inputs by name; make_seeds.py writes them.
"""

from __future__ import annotations

import struct
import zlib

from seed_values import BINARY, CLOSE, HELLO, PING, PONG, TEXT, Seeds, client, compact, websocket


def peer_frame(kind: int, topic: bytes = b"", payload: bytes = b"", flags: int = 0, trailer: bytes = b"") -> bytes:
    """Encodes a frame of the cluster protocol."""
    body = struct.pack("<BBHI", kind, flags, len(topic), len(payload)) + topic + payload + trailer
    return struct.pack(">I", len(body)) + body


def cluster_frame() -> Seeds:
    frame = peer_frame
    count = struct.pack("<QI", 7, 3)
    message = frame(0x01, b"news", compact({"t": "news", "p": {}}))
    return {
        "message": message,
        "message-stamped": frame(0x01, b"news", b"{}", 0x02, struct.pack("<Iq", 5, 8)),
        "message-compressed-flag": frame(0x01, b"news", b"(\xb5/\xfd", 0x01),
        "count": frame(0x20, payload=count),
        "ping-and-pong": frame(0x02, payload=count) + frame(0x03, payload=count),
        "subscribe-pattern": frame(0x06, b"news.*") + frame(0x07, b"news.*"),
        "resync-continued": frame(0x08, payload=b"a\nb\nc.*") + frame(0x08, payload=b"d", flags=0x01),
        "addresses": frame(0x09, b"127.0.0.1:5007") + frame(0x0A, payload=b"127.0.0.1:5007\n[::1]:5008"),
        "presence": frame(0x0B, b"room", compact({"user_id": "u", "action": "join"})) + frame(0x0C, payload=b"{}"),
        "unknown-kind-then-drain": frame(0x7F, b"x", b"y", 0xFF) + frame(0x0D),
        "behind-the-parts": frame(0x01, b"t", b"p", trailer=b"of a later version"),
        "cut-off": message[:-1],
        "too-short-to-be": struct.pack(">I", 7) + bytes(7),
        "parts-too-long": struct.pack(">I", 8) + struct.pack("<BBHI", 1, 0, 1, 0),
    }


def cluster_hello() -> Seeds:
    def hello(name: bytes, capabilities: int, nonce: bytes = b"", version: int = 1) -> bytes:
        payload = b"WSE\0" + struct.pack("<HH", version, len(name)) + name + struct.pack("<I", capabilities) + nonce
        return peer_frame(0x04, payload=payload)

    def addresses(*texts: bytes) -> bytes:
        return struct.pack("<H", len(texts)) + b"".join(struct.pack("<H", len(text)) + text for text in texts)

    secret = 1 << 19
    with_secret = hello(b"01a1fb4e-9c64-7130-bbd0-c0313ad1ae02", 15 | secret, bytes(range(32)))
    return {
        "hello": hello(b"one", 15),
        "hello-with-nonce": with_secret,
        "hello-with-proof": with_secret + peer_frame(0x21, payload=bytes(32)),
        "hello-with-refusal": with_secret + peer_frame(0x21, payload=bytes(32), flags=0x01),
        "hello-with-short-proof": with_secret + peer_frame(0x21, payload=bytes(31)),
        "hello-without-its-nonce": hello(b"one", 15 | secret),
        "hello-of-another-version": hello(b"one", 15, version=2),
        "name-with-a-line-break": hello(b"a\nb", 15),
        "addresses": addresses(b"127.0.0.1:7006", b"[::1]:7006", b"localhost:7006", b"node-1:7006"),
        "addresses-like-loopback": addresses(b"localhost.example:1", b"[::ffff:127.0.0.1]:1", b"127.1:1", b"0.0.0.0:1"),
        "addresses-with-signs": addresses(b"[::1]:+1", b"127.0.0.1:+1", b"[::1]:00001"),
        "addresses-that-lie": struct.pack("<HH", 65535, 65535) + b"a:1",
    }


def compressed_message() -> Seeds:
    # The service's response to an offer up to the first zero, then messages, each behind its length in two bytes.
    def said(response: bytes, *messages: bytes) -> bytes:
        return response + b"\0" + b"".join(struct.pack(">H", len(message)) + message for message in messages)

    def deflated(message: bytes, level: int = 9) -> bytes:
        compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
        return compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH)[:-4]

    name = b"permessage-deflate"
    # RFC 7692, section 7.2.3: "Hello" as a block, after itself, stored, in a final block, in two blocks; and nothing.
    hello, again = bytes.fromhex("f248cdc9c90700"), bytes.fromhex("f200110000")
    return {
        "hello-twice": said(name, hello, again),
        "hello-without-takeover": said(name + b"; server_no_context_takeover", hello, again),
        "stored": said(name, bytes.fromhex("000500faff48656c6c6f00")),
        "final-block": said(name, bytes.fromhex("f348cdc9c9070000"), again),
        "two-blocks": said(name, bytes.fromhex("f248050000 00ffffcac9c90700"), b"\0"),
        "bomb": said(name, deflated(bytes(1 << 20))),
        "as-much-as-may-be": said(name, deflated(bytes(4096)), deflated(b"x")),
        "windows": said(name + b'; server_max_window_bits="10"; client_max_window_bits=9', deflated(b"x" * 300)),
        "unknown-parameter": said(name + b"; x=1", hello),
        "final-blocks-without-end": said(name, b"\x03\0" * 40),
    }


def frame() -> Seeds:
    # The rest is split into chunks, whose size is the first byte plus one.
    text, long = client(TEXT, compact(HELLO)), client(BINARY, bytes(range(256)))
    return {
        "text": b"\x00" + text,
        "binary-16-bit-length": b"\x06" + long,
        "fragments-around-a-ping": b"\x02"
        + client(TEXT, b"ab", last=False)
        + client(PING, b"are you there")
        + client(0, b"cd", last=False)
        + client(0, b"ef"),
        "many": b"\xff" + text * 3 + client(PONG),
        "close": b"\x03" + client(CLOSE, struct.pack(">H", 1000) + b"bye") + text,
        "close-code-none-may-send": b"\x03" + client(CLOSE, struct.pack(">H", 1005)),
        "largest": b"\x7f" + client(BINARY, bytes(300)),
        "beyond-the-limit": b"\x7f" + client(BINARY, bytes(301)),
        "length-of-a-gigabyte": b"\x01" + client(BINARY, b"x", length=1 << 30),
        "not-masked": b"\x00" + websocket(TEXT, b"hello"),
        "reserved-bit": b"\x00" + bytes([0xC1]) + client(TEXT, b"x")[1:],
        "long-ping": b"\x00" + client(PING, bytes(126)),
        "no-utf8": b"\x00" + client(TEXT, b"\xff\xfe"),
        "utf8-cut-by-fragments": b"\x00" + client(TEXT, b"\xe2\x82", last=False) + client(0, b"\xac"),
        "continues-nothing": b"\x00" + client(0, b"x"),
    }


def service_frame() -> Seeds:
    text = websocket(TEXT, compact({"t": "x"}))
    return {
        "text": text,
        "binary-16-bit-length": websocket(BINARY, bytes(126)),
        "binary-64-bit-length": bytes([0x82, 127]) + struct.pack(">Q", 65536) + bytes(8),
        "fragment": websocket(TEXT, b"a", last=False) + websocket(0, b"b"),
        "ping": websocket(PING, b"x"),
        "close": websocket(CLOSE, struct.pack(">H", 1001) + b"going away"),
        "masked": client(TEXT, b"x"),
        "reserved-bit": bytes([0xC1]) + text[1:],
        "compressed-hello": websocket(TEXT, bytes.fromhex("f248cdc9c90700")).replace(b"\x81", b"\xc1", 1),
        "compressed-ping": bytes([0xC9, 0]),
        "length-not-the-shortest": bytes([0x81, 126, 0, 1]) + b"x",
        "length-of-an-exabyte": bytes([0x82, 127]) + struct.pack(">Q", 1 << 60),
        "fragmented-ping": websocket(PING, b"x", last=False),
        "two-and-a-half": text * 2 + text[:3],
    }


def stt_frame() -> Seeds:
    # Two bytes with the chunk size, and one whose value modulo four is the number of audio frames before the rest.
    def session(*frames: bytes, chunk: int = 647, audio: int = 1) -> bytes:
        return struct.pack("<HB", chunk, audio) + b"".join(frames)

    start, audio = client(TEXT, b'{"type":"start"}'), client(BINARY, bytes(640))
    return {
        "start": session(start, audio=0),
        "audio": session(audio, audio, audio=3),
        "audio-byte-by-byte": session(audio, chunk=0),
        "audio-split-oddly": session(audio, start, chunk=100, audio=2),
        "audio-of-another-length": session(client(BINARY, bytes(639)), audio=1),
        "audio-in-fragments": session(client(BINARY, bytes(320), last=False), client(0, bytes(320))),
        "fragments-around-a-ping": session(client(TEXT, b"a", last=False), client(PING, b"x"), client(0, b"b")),
        "close": session(client(CLOSE, struct.pack(">H", 1000)), audio),
        "close-with-half-a-code": session(client(CLOSE, b"\x03")),
        "not-masked": session(websocket(TEXT, b"x")),
        "reserved-bits": session(bytes([0xF2]) + audio[1:]),
        "too-big": session(client(BINARY, b"x", length=65537)),
        "no-utf8": session(client(TEXT, b"\xff")),
    }
