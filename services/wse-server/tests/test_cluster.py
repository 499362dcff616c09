"""Clusters through Python and real sockets: processes that are killed, and the unmodified reference."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_harness import cluster, links, numbers, publish, subscriber, wait_for_interest
from harness import Running, message, wait_until
from websockets.sync.client import ClientConnection, connect

from bench_redis import free_port
from bench_server import SECRET, token

HERE = Path(__file__).parent
Start = Callable[..., Running]


@pytest.fixture
def pair(start: Start) -> tuple[Running, Running]:
    """Two servers; the second one has connected to the first."""
    one, other = start(), start()
    cluster(one)
    cluster(other, one)
    wait_until(lambda: one.server.cluster_connected() and other.server.cluster_connected())
    return one, other


def test_publications_cross_the_cluster_and_peers_are_reported(pair: tuple[Running, Running]) -> None:
    one, other = pair
    client, _ = subscriber(other, "news.*")
    wait_for_interest(one, "news.es")
    publish(one, "news.es", range(100))
    assert numbers(client, 100) == list(range(100))
    [peer] = other.server.cluster_info()
    assert peer["address"] == f"127.0.0.1:{one.server.cluster_port}"
    assert peer["capabilities"] & 15 in (11, 15)
    assert len(peer["instance_id"]) == 36
    assert peer["connected_at"] > 1_700_000_000_000
    assert (one.server.cluster_peers_count(), links(one)["cluster_messages_sent"]) == (1, 100)
    assert links(other)["cluster_messages_delivered"] == 100
    assert "\nwse_cluster_messages_sent_total 100\n" in one.server.prometheus_metrics()


def test_invalid_settings_are_refused_and_the_error_names_the_fix(start: Start, tmp_path: Path) -> None:
    running = start()
    server = running.server
    for error, match, peers, options in [
        (ValueError, "cluster_port", [], {}),
        (ValueError, "HOST:PORT", ["nowhere"], {}),
        (ValueError, "0 to 65535", [], {"cluster_port": 70000}),
        (RuntimeError, "cluster_addr", [], {"cluster_port": 0, "seeds": ["a:1"]}),
        (ValueError, "all three files", [], {"cluster_port": 0, "tls_cert": "x"}),
        (
            ValueError,
            "missing.pem",
            [],
            dict.fromkeys(("tls_cert", "tls_key", "tls_ca"), tmp_path / "missing.pem") | {"cluster_port": 0},
        ),
        (OSError, "cluster port", [], {"cluster_port": server.port}),
    ]:
        with pytest.raises(error, match=match):
            server.connect_cluster(peers, **options)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not connected"):
        server.reload_cluster_tls("a", "b", "c")
    assert (server.cluster_connected(), server.cluster_info(), server.cluster_port) == (False, [], None)
    cluster(running)
    with pytest.raises(RuntimeError, match="once"):
        cluster(running)
    with pytest.raises(RuntimeError, match="without TLS"):
        server.reload_cluster_tls("a", "b", "c")
    assert server.get_cluster_dlq_entries() == []


class Node:
    """A clustered server in its own process."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.process = subprocess.Popen(
            [*command, json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def request(self, *call: Any) -> Any:
        """Calls a method of the server in the process and returns its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def node() -> Iterator[Callable[..., Node]]:
    """Starts server processes; kills them after the test."""
    nodes: list[Node] = []

    def node(command: list[str] | None = None, **options: Any) -> Node:
        nodes.append(Node(command or [sys.executable, str(HERE / "cluster_node.py")], **options))
        return nodes[-1]

    yield node
    for it in nodes:
        it.end()


def client_of(node: Node, topic: str) -> ClientConnection:
    """A client, without token, of a server process; it is subscribed to the topic."""
    client: ClientConnection = connect(f"ws://127.0.0.1:{node.ready['port']}/wse", compression=None, legacy=True)
    wait_until(lambda: bool(node.request("get_connections")))
    assert node.request("subscribe_connection", node.request("get_connections")[0], [topic])
    return client


def test_a_killed_instance_is_linked_again_after_its_restart_and_every_loss_is_counted(
    start: Start, node: Callable[..., Node]
) -> None:
    one = start()
    first = node(cluster={"peers": [], "cluster_port": 0})
    port = first.ready["cluster_port"]
    cluster(one, peers=[f"127.0.0.1:{port}"])
    client = client_of(first, "a")
    wait_for_interest(one, "a")
    publish(one, "a", range(1000))
    assert numbers(client, 1000) == list(range(1000))
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    wait_until(lambda: not one.server.cluster_connected())
    publish(one, "a", range(1000, 1100))
    second = node(cluster={"peers": [], "cluster_port": port})
    wait_until(one.server.cluster_connected)
    reconnected = client_of(second, "a")
    wait_for_interest(one, "a")
    # These messages were for the instance that has ended.
    wait_until(lambda: links(one)["cluster_messages_dropped"] == 100)
    assert {entry["error"] for entry in one.server.get_cluster_dlq_entries()} == {"gone"}
    publish(one, "a", range(2000, 2100))
    assert numbers(reconnected, 100) == list(range(2000, 2100))
    assert (links(one)["cluster_messages_sent"], second.request("health_snapshot")["cluster_messages_received"]) == (
        1100,
        100,
    )
    client.socket.close()
    reconnected.socket.close()


def test_a_client_recovers_missed_messages_at_another_instance(start: Start) -> None:
    one, other = start(recovery_enabled=True), start(recovery_enabled=True)
    cluster(one)
    cluster(other, one)
    client, connection_id = subscriber(other, "a")
    wait_for_interest(one, "a")
    publish(one, "a", range(5))
    last = [message(client) for _ in range(5)][-1]
    assert (last["tp"], last["o"], last["p"]["n"]) == ("a", 4, 4)
    client.close()
    other.server.disconnect(connection_id)
    publish(one, "a", range(5, 8))
    wait_until(lambda: links(other)["cluster_messages_received"] == 8)
    reconnected, reconnected_id = subscriber(other, "else")
    recovered = other.server.subscribe_with_recovery(reconnected_id, ["a"], True, last["e"], last["o"])
    assert (recovered["recovered"], recovered["topics"]["a"]["count"]) == (True, 3)
    assert numbers(reconnected, 3) == [5, 6, 7]


def test_remote_users_are_present_and_leave_with_their_instance(start: Start) -> None:
    one, other = start(presence_enabled=True), start(presence_enabled=True)
    cluster(one)
    cluster(other, one)
    wait_until(one.server.cluster_connected)
    watcher, _ = subscriber(one, "room")
    client = other.connect()
    connection_id = str(message(client)["p"]["details"]["connection_id"])
    other.server.subscribe_connection(connection_id, ["room"], {"status": "here"})
    joined = message(watcher)
    assert (joined["t"], joined["p"]["data"]) == ("presence_join", {"status": "here"})
    user = joined["p"]["user_id"]
    assert one.server.presence("room") == {user: {"data": {"status": "here"}, "connections": 1}}
    other.server.update_presence(connection_id, {"status": "away"})
    assert message(watcher)["p"]["data"] == {"status": "away"}
    other.server.stop()
    assert message(watcher)["t"] == "presence_leave"
    assert one.server.presence("room") == {}


REFERENCE = HERE.parents[2] / ".tools/reference/bin/python"


def mixed_pair(start: Start, node: Callable[..., Node], *, ours_first: bool) -> tuple[Running, Node]:
    """A server of ours and a reference server that have each other as peers.

    Of the two links with a reference, only the one that the lower instance name opened is kept; names grow with time.
    """
    ports = [free_port() for _ in range(3)]
    one = start(jwt_issuer=None, jwt_audience=None, presence_enabled=True, running=False)

    def ours() -> None:
        one.server.start()
        cluster(one, peers=[f"127.0.0.1:{ports[1]}"], cluster_port=ports[0])

    if ours_first:
        ours()
    theirs = node(
        [str(REFERENCE), str(HERE / "cluster_node.py")],
        port=ports[2],
        secret=SECRET.decode(),
        server={"presence_enabled": True},
        cluster={"peers": [f"127.0.0.1:{ports[0]}"], "cluster_port": ports[1]},
    )
    if not ours_first:
        ours()
    wait_until(lambda: one.server.cluster_connected() and theirs.request("cluster_peers_count") == 1)
    return one, theirs


def token_client(port: int) -> ClientConnection:
    """A client with a token that has received `server_ready`."""
    headers = {"Cookie": f"access_token={token(int(time.time()))}"}
    client: ClientConnection = connect(
        f"ws://127.0.0.1:{port}/wse", additional_headers=headers, compression=None, legacy=True
    )
    return client


def ticks(connection: ClientConnection, count: int) -> list[int]:
    """The numbers of the next ticks; other messages are skipped."""
    found: list[int] = []
    while len(found) < count:
        event = message(connection)
        if event["t"] == "tick":
            found.append(event["p"]["n"])
    return found


@pytest.mark.parametrize("ours_first", [True, False])
def test_an_unmodified_reference_takes_part(start: Start, node: Callable[..., Node], ours_first: bool) -> None:
    one, theirs = mixed_pair(start, node, ours_first=ours_first)
    ours_client, _ = subscriber(one, "a", "b.*")
    theirs_client = token_client(theirs.ready["port"])
    theirs_id = message(theirs_client)["p"]["details"]["connection_id"]
    theirs.request("subscribe_connection", theirs_id, ["c", "d.*", "room"], {"status": "here"})
    wait_for_interest(one, "d.x")
    long = "x" * 5000
    for number, topic in enumerate(("c", "d.x")):
        one.server.broadcast(topic, json.dumps({"t": "tick", "p": {"n": number, "long": long}}))
    assert ticks(theirs_client, 2) == [0, 1]
    for number, topic in enumerate(("a", "b.x", "other", "a")):
        theirs.request("broadcast", topic, json.dumps({"t": "tick", "p": {"n": number, "long": long}}))
    assert ticks(ours_client, 3) == [0, 1, 3]
    wait_until(lambda: list(one.server.presence("room").values()) == [{"data": {"status": "here"}, "connections": 1}])
    theirs_client.socket.close()
    wait_until(lambda: one.server.presence("room") == {})
    theirs.end()
    wait_until(lambda: not one.server.cluster_connected())
