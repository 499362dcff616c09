"""Connection quality: the score, its inputs, and the number of connections by grade."""

import socket
import time
from collections.abc import Callable

import pytest
from harness import Running, message, wait_until
from websockets.sync.client import ClientConnection

from bench_server import token


def ready(connection: ClientConnection) -> str:
    connection_id: str = message(connection)["p"]["details"]["connection_id"]
    return connection_id


def test_a_connection_with_nothing_wrong_is_excellent(running: Running) -> None:
    ids = [ready(running.connect()) for _ in range(3)]
    quality = running.server.get_connection_quality(ids[0])
    assert quality is not None
    assert (quality["grade"], quality["dropped"], quality["backlog_bytes"], quality["allowance"]) == (
        "excellent",
        0,
        0,
        1,
    )
    assert 0 < quality["round_trip_ms"] < 1000
    assert 0 <= quality["jitter_ms"] < 1000
    assert quality["sent"] >= 1
    assert quality["score"] == round(100 - sum(quality["penalties"].values()))
    assert set(quality["penalties"]) == {"loss", "backlog", "latency", "pace", "jitter"}
    assert running.server.get_connection_quality("nobody") is None
    counts = running.server.health_snapshot()["connection_quality"]
    assert list(counts) == ["excellent", "good", "fair", "poor"]
    assert sum(counts.values()) == 3
    running.server.disconnect(ids[0])
    running.wait(lambda: running.server.get_connection_quality(ids[0]) is None)
    running.wait(lambda: sum(running.server.health_snapshot()["connection_quality"].values()) == 2)


def test_a_client_that_reads_nothing_is_poor(start: Callable[..., Running]) -> None:
    running = start(max_outbound_queue_bytes=65536)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", running.server.port))
        client.sendall(
            b"GET /wse HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Authorization: Bearer " + token(int(time.time())).encode() + b"\r\n\r\n"
        )
        ((_, connection_id, _),) = running.drain(1)

        def is_poor() -> bool:
            for _ in range(100):
                running.server.send(connection_id, "x" * 10_000)
            quality = running.server.get_connection_quality(connection_id)
            return quality is not None and quality["grade"] == "poor"

        wait_until(is_poor)
        quality = running.server.get_connection_quality(connection_id)
        assert quality is not None
        assert quality["dropped"] > 0
        assert quality["penalties"]["loss"] == 40
        assert quality["penalties"]["backlog"] > 12
        counts = running.server.health_snapshot()["connection_quality"]
        assert counts == {"excellent": 0, "good": 0, "fair": 0, "poor": 1}


def test_a_client_that_gets_events_at_the_limit_loses_points_for_its_pace(start: Callable[..., Running]) -> None:
    running = start(rate_limit_capacity=10, rate_limit_refill=0)
    connection_id = ready(running.connect())
    allowances = []
    for number in range(11):
        quality = running.server.get_connection_quality(connection_id)
        assert quality is not None
        allowances.append(quality["allowance"])
        if number == 10:
            assert quality["penalties"]["pace"] == 10
        running.server.send_event(connection_id, {"t": "x", "p": {"number": number}})
    assert allowances == pytest.approx([1 - number / 10 for number in range(11)])


def test_a_summary_of_many_connections_counts_each_once(start: Callable[..., Running]) -> None:
    running = start(shards=2)
    connections = [running.connect() for _ in range(600)]
    for connection in connections:
        message(connection)
    for _ in range(3):
        assert sum(running.server.health_snapshot()["connection_quality"].values()) == 600
