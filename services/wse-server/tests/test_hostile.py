"""Malicious clients: the server closes and counts them, and serves the others."""

import struct
import zlib
from collections.abc import Callable

import pytest
from harness import Running, message
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection

MEBIBYTE = 1 << 20


def close_code(connection: ClientConnection) -> int:
    """The code with which the server closes the connection."""
    try:
        while True:
            connection.recv(10)
    except ConnectionClosedError as closed:
        return closed.rcvd.code if closed.rcvd else 1006


def test_a_zip_bomb_is_closed_with_1009(running: Running) -> None:
    bomb = b"C:" + zlib.compress(b'{"a":"' + b"x" * (64 * MEBIBYTE) + b'"}', 9)
    assert len(bomb) < MEBIBYTE
    with running.connect() as connection:
        connection.send(bomb)
        assert close_code(connection) == 1009
    assert [kind for kind, _, _ in running.drain(2)] == ["auth_connect", "disconnect"]


def test_a_message_over_the_limit_is_closed_with_1009(start: Callable[..., Running]) -> None:
    running = start(max_message_size=1000)
    with running.connect() as connection:
        connection.send("x" * 1000)
        connection.send("x" * 1001)
        assert close_code(connection) == 1009
    assert [len(data) for kind, _, data in running.drain(3) if kind == "raw"] == [1000]


@pytest.mark.parametrize("depth", [100, 5000, 300_000])
def test_messagepack_too_deep_to_decode_arrives_as_bytes(running: Running, depth: int) -> None:
    packed = b"\x81\xa1t" * depth + b"\xc0"
    with running.connect("?format=msgpack") as connection:
        connection.send(packed)
        assert running.drain(2)[1][::2] == ("bin", packed)


def test_json_too_deep_to_decode_arrives_raw(running: Running) -> None:
    text = '{"t":"x","p":' + "[" * 100_000 + "]" * 100_000 + "}"
    with running.connect() as connection:
        connection.send(text)
        assert running.drain(2)[1][::2] == ("raw", text)


@pytest.mark.parametrize(
    "packed",
    [
        b"\xdf" + struct.pack(">I", 0xFFFFFFFF),
        b"\xdd" + struct.pack(">I", 0xFFFFFFFF),
        b"\x81\xa1t\xdb" + struct.pack(">I", 0xFFFFFFFF),
        b"\x81\xa1t",
        b"\x81\xa1t\x01\x00",
        b"\x81\xa1t\xa1\xff",
        b"\xc1",
        b"",
    ],
)
def test_messagepack_with_a_wrong_length_arrives_as_bytes(running: Running, packed: bytes) -> None:
    with running.connect("?format=msgpack") as connection:
        connection.send(packed)
        assert running.drain(2)[1][::2] == ("bin", packed)


def test_compressed_garbage_arrives_as_bytes_and_affects_no_other_client(running: Running) -> None:
    with running.connect() as bad, running.connect() as good:
        message(bad)
        bad.send(b"C:not zlib at all")
        good.send('{"t":"x"}')
        kinds = sorted(kind for kind, _, _ in running.drain(4))
    assert kinds == ["auth_connect", "auth_connect", "bin", "msg"]


def test_many_names_do_not_grow_anything_without_limit(running: Running) -> None:
    with running.connect() as connection:
        for number in range(3000):
            connection.send(f'{{"t":"name{number}","key{number}":{number}}}')
        events = running.drain(3001)
    assert [data for _, _, data in events[1:]] == [
        {"t": f"name{number}", f"key{number}": number} for number in range(3000)
    ]
