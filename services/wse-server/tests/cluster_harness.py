"""Servers in a cluster: their links, their counters, and numbered publications between them."""

import json
import socket
from typing import Any

from harness import DEADLINE_SECONDS, Running, message, wait_until
from websockets.sync.client import ClientConnection


def cluster(running: Running, *peers: Running, **options: Any) -> None:
    """Connects a server to a cluster, with a port that the kernel chooses."""
    addresses = [f"127.0.0.1:{peer.server.cluster_port}" for peer in peers]
    running.server.connect_cluster(options.pop("peers", addresses), **({"cluster_port": 0} | options))


def links(running: Running) -> dict[str, Any]:
    """The cluster counters of the server's health snapshot."""
    return {name: value for name, value in running.server.health_snapshot().items() if name.startswith("cluster_")}


def subscriber(running: Running, *topics: str) -> tuple[ClientConnection, str]:
    connection = running.connect()
    connection_id = str(message(connection)["p"]["details"]["connection_id"])
    assert running.server.subscribe_connection(connection_id, list(topics)) == list(topics)
    return connection, connection_id


def wait_for_interest(running: Running, topic: str, by: int = 1) -> None:
    wait_until(lambda: running.server.get_topic_interest(topic) == by)


def publish(running: Running, topic: str, numbers: range) -> None:
    running.server.broadcast_many(topic, [json.dumps({"t": "tick", "p": {"n": n}}) for n in numbers])


def numbers(connection: ClientConnection, count: int) -> list[int]:
    return [message(connection)["p"]["n"] for _ in range(count)]


def refused(running: Running, reason: str) -> int:
    """How many connections of a server with a metrics port were refused for this reason."""
    count: int = json.loads(page(running, "/stats/links"))["cluster"]["refused"].get(reason, 0)
    return count


def page(running: Running, path: str) -> str:
    with socket.create_connection(("127.0.0.1", running.server.metrics_port or 0), DEADLINE_SECONDS) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        with stream.makefile("rb") as response:
            return response.read().decode().partition("\r\n\r\n")[2]
