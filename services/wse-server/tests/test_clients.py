"""The reference's own client, unmodified, against our server."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from harness import Running
from wse_client import ReconnectConfig, SyncWSEClient  # type: ignore[import-untyped]

from bench_server import token


@pytest.fixture
def client(running: Running) -> Iterator[Any]:
    """A connected client of the reference."""
    client = SyncWSEClient(
        running.url(), token=token(int(time.time())), reconnect=ReconnectConfig(base_delay=0.05, max_delay=0.1)
    )
    client.connect(10)
    yield client
    client.close()


def received(running: Running, expected_type: str) -> Any:
    """Drains until a message of this type; returns its data with the connection's id."""
    while True:
        for kind, connection_id, data in running.drain(1):
            if kind == "msg" and data["t"] == expected_type:
                return connection_id, data


def next_event(client: Any, expected_type: str) -> Any:
    """Receives until an event of this type and returns it."""
    while True:
        event = client.recv(timeout=10)
        if event.type == expected_type:
            return event


def test_the_reference_client_connects_and_sends(running: Running, client: Any) -> None:
    assert client.is_connected
    assert client.send("order", {"symbol": "ES", "qty": 2})
    _, data = received(running, "order")
    assert data["p"] == {"symbol": "ES", "qty": 2}
    assert data["c"] == "U"


def test_the_reference_client_receives_json_and_messagepack(running: Running, client: Any) -> None:
    client.send("hello", {})
    connection_id, _ = received(running, "hello")
    running.server.send(connection_id, '{"c":"U","t":"tick","p":{"n":1},"v":1}')
    assert next_event(client, "tick").payload == {"n": 1}
    packed = msgpack.packb({"c": "U", "t": "packed", "p": {"n": 2}, "v": 1})
    running.server.send_bytes(connection_id, b"M:" + packed)
    assert next_event(client, "packed").payload == {"n": 2}
    running.server.broadcast_all('{"t":"all","p":{"n":3}}')
    assert next_event(client, "all").payload == {"n": 3}


def test_pings_of_the_client_are_answered_and_never_reach_the_application(running: Running) -> None:
    with running.connect() as connection:
        connection.recv(10)
        connection.send('{"c":"WSE","t":"ping","p":{"timestamp":123},"v":1}')
        pong = connection.recv(10)
        assert isinstance(pong, str)
        assert pong.startswith('{"c":"WSE","t":"PONG","p":{"client_timestamp":123,"server_timestamp":')
        connection.send('{"t":"after"}')
        assert [event[0] for event in running.drain(2)] == ["auth_connect", "msg"]


def test_the_reference_client_reconnects_after_a_restart_of_the_server(
    start: Callable[..., Running], running: Running, client: Any
) -> None:
    client.send("before", {})
    received(running, "before")
    port = running.server.port
    # The connection ends without a close handshake, as in a crash: after 1001 the client would not reconnect.
    for connection_id in running.server.get_connections():
        running.server.disconnect(connection_id)
    running.server.stop()
    restarted = start(port=port)
    restarted.wait(lambda: restarted.server.get_connection_count() == 1 and client.is_connected)
    assert client.send("after", {})
    received(restarted, "after")
