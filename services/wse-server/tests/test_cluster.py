"""Clusters through Python and real sockets: processes that are killed, TLS, and the unmodified reference."""

import datetime
import ipaddress
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness import DEADLINE_SECONDS, Running, message, wait_until
from websockets.sync.client import ClientConnection, connect

from bench_redis import free_port
from bench_server import SECRET, token

HERE = Path(__file__).parent
Start = Callable[..., Running]


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


def test_impossible_settings_are_refused_with_the_remedy(start: Start, tmp_path: Path) -> None:
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


class Authority:
    """A certificate authority for servers at 127.0.0.1 and localhost."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self.sign(name, self.key, is_authority=True)
        (folder / f"{name}-ca.pem").write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if is_authority else self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            builder = builder.add_extension(x509.SubjectAlternativeName(self.alternative_names(name)), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def alternative_names(self, _name: str) -> list[x509.GeneralName]:
        """The names in the certificate of a server: here the same for all."""
        return [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]

    def files(self, name: str) -> dict[str, Path]:
        """Creates the files of a server and returns them as arguments."""
        key = ec.generate_private_key(ec.SECP256R1())
        paths = {"tls_cert": self.folder / f"{name}.pem", "tls_key": self.folder / f"{name}-key.pem"}
        paths["tls_cert"].write_bytes(self.sign(name, key).public_bytes(serialization.Encoding.PEM))
        paths["tls_key"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths | {"tls_ca": self.folder / f"{self.name}-ca.pem"}


def test_certificates_of_one_authority_are_a_cluster_by_name_and_by_address(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    one, other, named = start(), start(), start()
    cluster(one, **authority.files("one"))
    cluster(other, one, **authority.files("other"))
    cluster(named, peers=[f"localhost:{one.server.cluster_port}"], **authority.files("named"))
    wait_until(lambda: one.server.cluster_peers_count() == 2)
    client, _ = subscriber(other, "a")
    wait_for_interest(one, "a")
    publish(one, "a", range(5000))
    assert numbers(client, 5000) == list(range(5000))


def test_foreign_and_unencrypted_peers_are_refused_and_counted_and_others_stay(start: Start, tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    options: dict[str, Any] = {"metrics_port": 0}
    one, other, plain, foreign_node, lonely = (start(**options) for _ in range(5))
    cluster(one, **authority.files("one"))
    cluster(other, one, **authority.files("other"))
    cluster(plain, one)
    cluster(foreign_node, one, **foreign.files("stranger"))
    cluster(lonely, plain, **authority.files("lonely"))

    wait_until(lambda: refused(one, "tls") >= 2 and refused(plain, "tls") >= 2 and refused(foreign_node, "tls") >= 1)
    assert [it.server.cluster_peers_count() for it in (one, other, plain, foreign_node, lonely)] == [1, 1, 0, 0, 0]


def refused(running: Running, reason: str) -> int:
    """How many connections of a server with a metrics port were refused for this reason."""
    count: int = json.loads(page(running, "/stats/links"))["cluster"]["refused"].get(reason, 0)
    return count


def page(running: Running, path: str) -> str:
    with socket.create_connection(("127.0.0.1", running.server.metrics_port or 0), DEADLINE_SECONDS) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        with stream.makefile("rb") as response:
            return response.read().decode().partition("\r\n\r\n")[2]


def test_reloaded_certificates_apply_to_new_links_and_wrong_ones_are_refused(start: Start, tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    one, other, joining = start(), start(), start()
    files = old.files("one")
    cluster(one, **files)
    cluster(other, one, **old.files("other"))
    wait_until(one.server.cluster_connected)
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(ValueError, match=r"tls_cert.*wrong\.pem.*PEM"):
        one.server.reload_cluster_tls(wrong, files["tls_key"], files["tls_ca"])
    with pytest.raises(ValueError, match="the key that the certificate was made for"):
        one.server.reload_cluster_tls(files["tls_cert"], old.files("another")["tls_key"], files["tls_ca"])
    fresh = new.files("fresh")
    one.server.reload_cluster_tls(fresh["tls_cert"], fresh["tls_key"], fresh["tls_ca"])
    cluster(joining, one, **new.files("late"))
    wait_until(lambda: one.server.cluster_peers_count() == 2)


def test_the_environment_names_the_files_by_default(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Authority(tmp_path, "ours").files("one")
    for name, file in zip(("CERT", "KEY", "CA"), ("tls_cert", "tls_key", "tls_ca"), strict=True):
        monkeypatch.setenv(f"WSE_CLUSTER_TLS_{name}", str(files[file]))
    one = start()
    cluster(one)
    context = ssl.create_default_context(cafile=files["tls_ca"])
    context.load_cert_chain(files["tls_cert"], files["tls_key"])
    address = ("127.0.0.1", one.server.cluster_port or 0)
    with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        assert secure.version() == "TLSv1.3"


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
