"""`drain_inbound()` returns what the reference returns, except where the reference loses data."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from harness import Running, message

TRANSCRIPTS = Path(__file__).resolve().parents[2] / "testdata" / "reference-transcripts.json"
CASES = {case["case"]: case for case in json.loads(TRANSCRIPTS.read_text())["cases"]}

SENT = {
    "inbound_json": '{"t":"trade","p":{"a":1,"b":2.5,"c":[1,"x"]}}',
    "inbound_prefixed": 'U{"t":"trade","p":{}}',
    "inbound_long_names": '{"type":"trade","payload":{"k":1}}',
    "inbound_not_json": "hello",
    "inbound_bad_json": '{"t":',
    "inbound_array": "[1,2]",
}


def transcript(case: str) -> list[tuple[str, Any]]:
    # The captured events are Python literals with the id blanked out.
    events = [eval(text) for text in CASES[case]["frames"]]
    return [(kind, data) for kind, _, data in events]


@pytest.mark.parametrize("case", SENT)
def test_an_inbound_message_arrives_as_the_reference_delivers_it(running: Running, case: str) -> None:
    assert SENT[case] in CASES[case]["note"]
    with running.connect() as connection:
        ready = message(connection)
        connection.send(SENT[case])
        opened, event = running.drain(2)
    connection_id = ready["p"]["details"]["connection_id"]
    assert opened == ("auth_connect", connection_id, "bench-user")
    assert [(event[0], event[2])] == transcript(case)
    assert event[1] == connection_id


def test_plain_messagepack_arrives_as_the_reference_delivers_it(running: Running) -> None:
    with running.connect("?format=msgpack") as connection:
        connection.send(msgpack.packb({"t": "trade", "p": {"a": 1}}))
        assert running.drain(2)[1][::2] == transcript("msgpack_inbound")[0]


def test_prefixed_messagepack_is_decoded_where_the_reference_gives_77(running: Running) -> None:
    with running.connect("?format=msgpack") as connection, running.connect() as plain:
        connection.send(b"M:" + msgpack.packb({"t": "trade", "p": {"a": 1}}))
        plain.send(b"M:" + msgpack.packb({"type": "trade"}))
        events = [data for kind, _, data in running.drain(4) if kind == "msg"]
    assert sorted(events, key=len) == [{"t": "trade"}, {"t": "trade", "p": {"a": 1}}]


def test_compressed_json_is_inflated_where_the_reference_gives_bytes(running: Running) -> None:
    with running.connect() as connection:
        connection.send(b"C:" + zlib.compress(b'{"t":"x","p":{"n":1}}'))
        connection.send(b"\x00\x01")
        assert [event[::2] for event in running.drain(3)[1:]] == [
            ("msg", {"t": "x", "p": {"n": 1}}),
            ("bin", b"\x00\x01"),
        ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775807", 9223372036854775807),
        ("-9223372036854775808", -9223372036854775808),
        ("18446744073709551615", 1.8446744073709552e19),
        ("123456789012345678901234567890", 1.2345678901234568e29),
        ("1e3", 1000.0),
        ("-0.0", -0.0),
        ("0.1", 0.1),
        ("5234.75", 5234.75),
        ("2.2250738585072014e-308", 2.2250738585072014e-308),
        ("true", True),
        ("null", None),
        ('"\\u00e9\\ud83d\\ude00"', "é😀"),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_values_follow_the_references_rules(running: Running, text: str, value: object) -> None:
    with running.connect() as connection:
        connection.send(f'{{"v":{text}}}')
        kind, _, data = running.drain(2)[1]
    assert kind == "msg"
    assert repr(data) == repr({"v": value})


def test_short_names_win_and_the_last_of_two_equal_keys_counts(running: Running) -> None:
    with running.connect() as connection:
        connection.send('{"type":"a","t":"b","payload":1,"p":2}')
        connection.send('{"a":1,"a":2}')
        events = running.drain(3)
    assert events[1][2] == {"type": "a", "t": "b", "payload": 1, "p": 2}
    assert events[2][2] == {"a": 2}


@pytest.mark.parametrize("text", ["U[1]", "Uhello", ' {"t":"a"}', "", '"x"', '{"t":"a"} x', '{"a":1e999}', "{" * 200])
def test_messages_that_are_not_objects_arrive_raw_and_are_counted(running: Running, text: str) -> None:
    with running.connect() as connection:
        connection.send(text)
        assert running.drain(2)[1][::2] == ("raw", text)
    metrics = running.server.prometheus_metrics().splitlines()
    assert "service_messages_malformed_total 1" in metrics


def test_messagepack_keeps_values_that_json_has_not(running: Running) -> None:
    value = {"t": "x", "p": {"raw": b"ab", 7: None, "list": [1.5, -1, 2**63]}}
    with running.connect("?format=msgpack") as connection:
        connection.send(msgpack.packb(value))
        assert running.drain(2)[1][::2] == ("msg", value | {"p": value["p"] | {"list": [1.5, -1, float(2**63)]}})  # type: ignore[operator]


def test_a_messagepack_map_without_a_python_equivalent_arrives_as_bytes(running: Running) -> None:
    packed = b"\x81\x80\x01"  # {{}: 1}
    with running.connect("?format=msgpack") as connection:
        connection.send(packed)
        assert running.drain(2)[1][::2] == ("bin", packed)


def test_without_a_secret_the_application_gets_the_cookie_and_sends_first(start: Callable[..., Running]) -> None:
    running = start(jwt_secret=None, jwt_issuer=None, jwt_audience=None)
    with running.connect(cookie="session=1") as connection:
        kind, connection_id, cookie = running.drain(1)[0]
        assert (kind, cookie) == ("connect", "session=1")
        assert running.server.send(connection_id, '{"t":"server_ready"}')
        assert message(connection) == {"t": "server_ready"}


def test_the_last_event_of_a_connection_is_its_disconnect(running: Running) -> None:
    with running.connect() as connection:
        connection.send('{"t":"x"}')
    events = running.drain(3)
    assert [kind for kind, _, _ in events] == ["auth_connect", "msg", "disconnect"]
    assert len({connection_id for _, connection_id, _ in events}) == 1
    assert events[2][2] is None
