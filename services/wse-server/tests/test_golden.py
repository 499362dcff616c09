"""The golden messages: independent decoders agree with the file, and the server delivers what the file specifies."""

import json
import zlib
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from harness import Running, message

FILE = Path(__file__).resolve().parents[2] / "testdata" / "wse-messages.json"
GOLDEN: list[dict[str, Any]] = json.loads(FILE.read_text())["messages"]
FROM_CLIENT = [golden for golden in GOLDEN if golden["from"] == "client"]


def name(golden: dict[str, Any]) -> str:
    return f"{golden['from']}-{golden['name']}"


def parse(text: str) -> object:
    """Parses JSON, after removing the category that old clients and servers put before it."""
    for prefix in ("WSE{", "S{", "U{"):
        if text.startswith(prefix):
            text = text[len(prefix) - 1 :]
    return json.loads(text)


def decode(golden: dict[str, Any]) -> object:
    """Decodes the bytes of a message; `None` if they are not a message."""
    raw = bytes.fromhex(golden["hex"])
    try:
        if golden["opcode"] == "text":
            return parse(raw.decode())
        if raw.startswith(b"C:"):
            return parse(zlib.decompress(raw[2:]).decode())
        if raw.startswith(b"M:"):
            return msgpack.unpackb(raw[2:])
        return msgpack.unpackb(raw) if "query" in golden else parse(raw.decode())
    except (ValueError, zlib.error, msgpack.UnpackException):
        return None


@pytest.mark.parametrize("golden", GOLDEN, ids=name)
def test_independent_decoders_agree_with_the_file(golden: dict[str, Any]) -> None:
    assert decode(golden) == golden["decoded"]
    assert golden["source"]


def test_every_message_has_a_name_of_its_own() -> None:
    names = [golden["name"] for golden in GOLDEN]
    assert len(set(names)) == len(names)


def delivered(golden: dict[str, Any]) -> tuple[str, object]:
    """The event that the application gets, with long names replaced by short ones as in the reference."""
    raw = bytes.fromhex(golden["hex"])
    if golden["means"] == "bin":
        return "bin", raw
    if golden["means"] == "raw":
        return "raw", raw.decode()
    short = {"type": "t", "payload": "p"}
    return "msg", {short.get(key, key): value for key, value in golden["decoded"].items()}


@pytest.mark.parametrize("golden", FROM_CLIENT, ids=name)
def test_each_client_message_has_the_meaning_in_the_file(running: Running, golden: dict[str, Any]) -> None:
    raw = bytes.fromhex(golden["hex"])
    with running.connect(golden.get("query", "")) as connection:
        message(connection)
        connection.send(raw.decode() if golden["opcode"] == "text" else raw)
        connection.send("behind")
        if golden["means"] in ("msg", "raw", "bin"):
            assert running.drain(3)[1][::2] == delivered(golden)
            return
        # A consumed message doesn't reach the application.
        assert running.drain(2)[1][::2] == ("raw", "behind")
        if golden["means"] == "ping":
            reply = message(connection)
            assert (reply["t"], reply["p"]["client_timestamp"]) == ("PONG", golden["client_timestamp"])
        elif golden["means"] == "hello":
            assert message(connection)["t"] == "server_hello"
