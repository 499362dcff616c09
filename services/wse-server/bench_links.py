"""Links between instances of the fan-out service: through Redis, or through a cluster of direct connections.

A publishing instance sends to one topic; a subscribing instance subscribes all its connections to that topic. This
module is outside the hot path: it connects instances, counts the subscribers at other instances, and reports progress.
"""

import argparse
import http.client
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench_backpressure import Backlog
from bench_metrics import RESPONSE_SECONDS
from bench_publisher import Subscribers
from bench_tls import FOLDER, Tls, generate

TOPIC = "bench_topic"
DEFAULT_REDIS = "redis://127.0.0.1:6379"
# The published benchmarks' cluster ports are 2000 above those of the clients.
CLUSTER_OFFSET = 2000
# Seconds between two queries of subscribers at other instances. A change is detected within this time.
INTEREST_SECONDS = 0.1


class Mode(NamedTuple):
    """Whether an instance publishes, and its link."""

    publishes: bool
    link: str | None
    """The link to other instances: `redis`, `cluster`, or `None`."""


MODES = {
    "broadcast": Mode(True, None),
    "pubsub": Mode(True, "redis"),
    "subscribe": Mode(False, "redis"),
    "cluster": Mode(True, "cluster"),
    "cluster-subscribe": Mode(False, "cluster"),
}
"""Modes by the names for `--mode`, which are those of the published benchmarks."""


# Environment variables with the settings of a single instance.
INSTANCE_VARIABLES = (
    *("HOST", "PORT", "METRICS_PORT", "MODE", "RATE", "MESSAGE_SIZE", "BACKLOG_BYTES", "PUBLISH_ALWAYS"),
    *("REDIS_URL", "PEERS", "CLUSTER_PORT", "CLUSTER_ADDR", "CLUSTER_SECRET"),
    *("TLS_CERT", "TLS_KEY", "TLS_CA", "GENERATE_TLS"),
    *("PUBLISHER_METRICS", "SUBSCRIBER_METRICS"),
)


class Redis:
    """A link through a Redis server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._url: str = options.redis_url

    def connect(self, server: Any) -> None:
        """Connects a started server to the link."""
        server.connect_redis(self._url)

    def is_connected(self, server: Any) -> bool:
        """Whether the server is connected to Redis."""
        return bool(server.redis_connected())


class Cluster:
    """A link through the engine's cluster connections."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._peers: list[str] = options.peers
        self._port: int = options.cluster_port
        self._address: str | None = options.cluster_addr
        # Only from the environment: all users of a machine see the arguments of a process.
        self._secret = os.environ.get("CLUSTER_SECRET") or None
        self._tls = Tls(options.tls_cert, options.tls_key, options.tls_ca) if options.tls_cert else None
        if options.generate_tls:
            hosts = [options.host, *([self._address.rpartition(":")[0]] if self._address else [])]
            self._tls = generate(Path(FOLDER), hosts)

    def connect(self, server: Any) -> None:
        """Connects a started server to the link."""
        cert, key, ca = self._tls or (None, None, None)
        server.connect_cluster(
            self._peers,
            tls_cert=cert,
            tls_key=key,
            tls_ca=ca,
            cluster_port=self._port,
            cluster_addr=self._address,
            cluster_secret=self._secret,
        )

    def is_connected(self, server: Any) -> bool:
        """Whether there is a link to all configured peers; always true without configured peers."""
        count: int = server.cluster_peers_count()
        return count >= len(self._peers)


LINKS: dict[str, Callable[[argparse.Namespace], Redis | Cluster]] = {"redis": Redis, "cluster": Cluster}


class InstanceClient:
    """A client of another instance's metrics port, with a persistent connection."""

    def __init__(self, address: str) -> None:
        """Takes the address of the metrics port as `host:port`."""
        host, _, port = address.rpartition(":")
        self.address = address
        self._connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=RESPONSE_SECONDS)
        self._lock = threading.Lock()

    def get(self, path: str) -> Any:
        """Gets a page as JSON.

        Raises:
            OSError: the instance doesn't respond, or responds with a status other than 200.
        """
        with self._lock:
            try:
                # The connection may have been closed because it was idle or the instance was replaced.
                if self._connection.sock is None:
                    self._connection.connect()
                self._connection.request("GET", path)
                response = self._connection.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise OSError(f"{self.address}{path} does not respond: {error}") from error
        if response.status != 200:
            raise OSError(f"{self.address}{path} responded with {response.status}: {body.decode().strip()}")
        return json.loads(body)

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        with self._lock:
            self._connection.close()


class InstanceClients:
    """The subscribing instances, read from `/progress`; when one doesn't respond, its last values are used."""

    def __init__(self, addresses: list[str]) -> None:
        self._others = [InstanceClient(address) for address in addresses]
        self._last = [{"delivered": 0, "lost": 0, "backlog_bytes": 0, "subscribers": 0} for _ in addresses]

    def backlogs(self) -> list[Backlog]:
        """The progress of each instance."""
        return [Backlog(one["delivered"] + one["lost"], one["backlog_bytes"]) for one in self._read()]

    def subscribers(self) -> int:
        """The number of subscribers of all instances."""
        return sum(one["subscribers"] for one in self._read())

    def close(self) -> None:
        """Closes the connections to all other instances."""
        for other in self._others:
            other.close()

    def _read(self) -> list[dict[str, int]]:
        for at, other in enumerate(self._others):
            try:
                self._last[at] = other.get("/progress")
            except OSError:
                # If the instance is gone for good, later requests show it.
                continue
        return self._last


class Interest:
    """Polls the number of subscribers at other instances and reports it to the publisher."""

    def __init__(self, server: Any, subscribers: Subscribers, others: InstanceClients | None) -> None:
        self._server = server
        self._subscribers = subscribers
        self._others = others
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="interest", daemon=True)

    def start(self) -> None:
        """Starts polling in its own thread, because responses may be slow."""
        self._thread.start()

    def stop(self) -> None:
        """Stops polling and waits for the thread, at most a second."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        while not self._stopping.wait(INTEREST_SECONDS):
            instances: int = self._server.get_topic_interest(TOPIC)
            # The engine counts interested servers; the subscribers of an instance are only in its own counters.
            remote_count = self._others.subscribers() if self._others and instances else 0
            self._subscribers.set_remote(max(instances, remote_count))


def progress(links: dict[str, Any], backlog_bytes: int, subscribers: int) -> dict[str, int]:
    """The page `/progress`: the progress of an instance in delivering others' publications."""
    kinds = [kind for kind in links.values() if kind]
    return {
        "delivered": sum(kind["delivered"] for kind in kinds),
        "lost": sum(kind["lost"] for kind in kinds),
        "backlog_bytes": backlog_bytes,
        "subscribers": subscribers,
    }


def add_link_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of links. The default of each is the environment variable of the same name, such as REDIS_URL."""
    environment = os.environ

    def add(name: str, help_text: str, **more: Any) -> None:
        variable = name.lstrip("-").replace("-", "_").upper()
        fallback = more.pop("default", None)
        parser.add_argument(name, default=environment.get(variable) or fallback, help=help_text, **more)

    add(
        "--redis-url",
        "Redis of the modes pubsub and subscribe; a password is better given as REDIS_URL",
        default=DEFAULT_REDIS,
    )
    parser.add_argument(
        "--peers",
        nargs="*",
        default=[environment.get("PEERS", "")],
        help="cluster ports of other instances, HOST:PORT each, separated by blanks or commas",
    )
    add(
        "--cluster-port",
        f"port for other instances; 0: the kernel chooses one; default: the port + {CLUSTER_OFFSET}",
        type=int,
    )
    add("--cluster-addr", "HOST:PORT at which other instances reach this one; CLUSTER_SECRET has the instances' secret")
    add("--tls-cert", "certificate for other instances, in PEM; with it --tls-key and --tls-ca")
    add("--tls-key", "private key of the certificate")
    add("--tls-ca", "the authority that signed the certificates of all instances")
    parser.add_argument(
        "--generate-tls",
        action="store_true",
        default=environment.get("GENERATE_TLS", "") not in ("", "0"),
        help=f"create these three files, valid for a day, in {FOLDER}, or use existing ones",
    )
    add("--publisher-metrics", "HOST:PORT of the publishing instance's metrics: this instance's pages then report both")
    add(
        "--subscriber-metrics",
        "HOST:PORT of the subscribing instances' metrics, separated by commas: a flood waits for these instances",
        default="",
    )


def check_link_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Completes the options; exits with a message when they are invalid."""
    options.peers = [peer for word in options.peers for peer in word.replace(",", " ").split()]
    options.subscriber_metrics = [one for one in options.subscriber_metrics.replace(",", " ").split() if one]
    tls = [options.tls_cert, options.tls_key, options.tls_ca]
    if any(tls) and not all(tls):
        parser.error("--tls-cert, --tls-key and --tls-ca belong together")
    if any(tls) and options.generate_tls:
        parser.error("--generate-tls and --tls-cert exclude each other: give one of them")
    if options.cluster_port is None:
        options.cluster_port = options.port + CLUSTER_OFFSET if options.port else 0
    if MODES[options.mode].publishes and options.publisher_metrics:
        parser.error(f"--mode {options.mode} publishes itself: --publisher-metrics is for instances that subscribe")
