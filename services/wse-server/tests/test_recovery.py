"""Recovery after a lost connection, through Python and real sockets, and with the reference's client."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import wse_client  # type: ignore[import-untyped]
from harness import Running, message
from websockets.sync.client import ClientConnection

from bench_server import token

Position = dict[str, Any]


def ready(running: Running) -> tuple[ClientConnection, str]:
    """A connection and its id."""
    connection = running.connect()
    return connection, str(message(connection)["p"]["details"]["connection_id"])


def publish(running: Running, topic: str, numbers: range) -> None:
    for number in numbers:
        running.server.broadcast(topic, json.dumps({"t": "tick", "p": {"n": number}}))


def stamps(connection: ClientConnection, count: int) -> list[tuple[str, str, int, int]]:
    """Topic, epoch, offset and number of the next messages."""
    messages = [message(connection) for _ in range(count)]
    return [(it["tp"], it["e"], it["o"], it["p"]["n"]) for it in messages]


@pytest.fixture
def running(start: Callable[..., Running]) -> Running:
    return start(recovery_enabled=True, recovery_buffer_size=16, recovery_max_messages=10)


def test_a_client_that_reconnects_gets_missed_messages_before_new_ones(running: Running) -> None:
    first, first_id = ready(running)
    fresh = running.server.subscribe_with_recovery(first_id, ["a"])["topics"]["a"]
    assert (fresh["offset"], fresh["recoverable"], fresh["recovered"], fresh["count"]) == (-1, True, False, 0)
    publish(running, "a", range(5))
    received = stamps(first, 5)
    assert received == [("a", fresh["epoch"], number, number) for number in range(5)]
    first.close()
    publish(running, "a", range(5, 9))
    second, second_id = ready(running)
    outcome = running.server.subscribe_with_recovery(second_id, ["a"], True, fresh["epoch"], 4)
    publish(running, "a", range(9, 10))
    assert outcome["recovered"]
    assert outcome["topics"]["a"] == {
        "epoch": fresh["epoch"],
        "offset": 8,
        "recoverable": True,
        "recovered": True,
        "count": 4,
    }
    assert stamps(second, 5) == [("a", fresh["epoch"], number, number) for number in range(5, 10)]


def test_a_client_that_cannot_recover_starts_anew(running: Running) -> None:
    _, connection_id = ready(running)
    publish(running, "a", range(100))
    position = running.server.subscribe_with_recovery(connection_id, ["a"])["topics"]["a"]
    assert position["offset"] == 99
    other = f"{int(position['epoch'], 16) ^ 1:08x}"
    for epoch, offset in [(position["epoch"], 5), (position["epoch"], 88), (position["epoch"], 500), (other, 99)]:
        outcome = running.server.subscribe_with_recovery(connection_id, ["a"], True, epoch, offset)
        assert (outcome["recovered"], outcome["topics"]["a"]["count"]) == (False, 0)
    assert running.server.subscribe_with_recovery(connection_id, ["a"], True, position["epoch"], 89)["recovered"]
    with pytest.raises(ValueError, match="hexadecimal"):
        running.server.subscribe_with_recovery(connection_id, ["a"], True, "xyz", 1)


def test_patterns_and_servers_without_recovery_have_no_history(running: Running, start: Callable[..., Running]) -> None:
    _, connection_id = ready(running)
    outcome = running.server.subscribe_with_recovery(connection_id, ["a.*"], True, "00000000", 1)
    assert outcome["recovered"] is False
    assert outcome["topics"]["a.*"]["epoch"] is None
    plain = start()
    connection, connection_id = ready(plain)
    outcome = plain.server.subscribe_with_recovery(connection_id, ["a"])
    assert outcome["topics"]["a"]["recoverable"] is False
    plain.server.broadcast("a", '{"t":"tick"}')
    assert connection.recv(10) == '{"c":"U","t":"tick"}'
    assert plain.server.health_snapshot()["recovery_enabled"] is False


def test_the_history_shows_in_health_and_metrics(running: Running) -> None:
    publish(running, "a", range(3))
    snapshot = running.server.health_snapshot()
    assert (snapshot["recovery_enabled"], snapshot["recovery_topic_count"]) == (True, 1)
    assert snapshot["recovery_total_bytes"] > 100
    assert "\nwse_recovery_topics 1\n" in running.server.prometheus_metrics()


def reply_to_update(running: Running, connection_id: str, update: dict[str, Any]) -> None:
    """Answers a client's `subscription_update` as an application does."""
    topics = update["topics"]
    recovery: Position = next(iter(update.get("recovery", {}).values()), {})
    outcome = running.server.subscribe_with_recovery(
        connection_id, topics, bool(update.get("recover")), recovery.get("epoch"), recovery.get("offset")
    )
    p = {"action": "subscribe", "success": True, "success_topics": topics, "recovery": outcome["topics"]}
    running.server.send(connection_id, json.dumps({"c": "WSE", "t": "subscription_update", "p": p}))


async def serve(running: Running, numbers: list[int], total: int) -> int:
    """Publishes five numbers, drops the client, publishes the rest meanwhile; returns the number of its connections."""
    connections = published = 0
    while len(numbers) < total:
        for kind, connection_id, data in await asyncio.to_thread(running.server.drain_inbound, 64, 20):
            connections += kind == "auth_connect"
            if kind == "msg" and data["t"] == "subscription_update":
                reply_to_update(running, connection_id, data["p"])
                if not published:
                    published = 5
                    publish(running, "a", range(published))
        if len(numbers) == published == 5:
            published = total
            for connection_id in running.server.get_connections():
                running.server.disconnect(connection_id)
            publish(running, "a", range(5, total))
    return connections


def test_the_reference_s_client_recovers_after_a_dropped_connection(running: Running) -> None:
    async def run() -> tuple[list[int], int]:
        numbers: list[int] = []
        async with wse_client.AsyncWSEClient(running.url(), token=token(int(time.time()))) as client:
            client.on("tick")(lambda event: numbers.append(event.payload["n"]))
            await client.subscribe(["a"], recover=True)
            connections = await asyncio.wait_for(serve(running, numbers, 12), 30)
        return numbers, connections

    numbers, connections = asyncio.run(run())
    assert (numbers, connections) == (list(range(12)), 2)
