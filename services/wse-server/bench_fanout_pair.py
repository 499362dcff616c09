"""Two linked instances of the fan-out service, presented as one service (tests 10 to 12 of the seeds).

One instance publishes and has no clients; the other has all clients and delivers the publications, which it gets
through a private Redis or a cluster link. This process serves no clients: it starts the instances, waits until they are
connected, announces the address for clients, and combines their books on one metrics port. The cost of the service is
that of all processes, including Redis and this one; `/stats/processes` lists them separately.
"""

import argparse
import json
import os
import queue
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from bench_fanout_server import MAX_CONNECTIONS
from bench_links import INSTANCE_VARIABLES
from bench_metrics import TEXT, MetricsPort, Page, json_page
from bench_processes import Child, add, add_metrics, stop_process
from bench_publisher import add_arguments
from bench_redis import PrivateRedis
from bench_redis import version as redis_version
from bench_server import listening_arguments, metrics_port
from bench_tls import FOLDER, UNSPECIFIED_HOSTS, Tls, generate

PROGRAM = str(Path(__file__).with_name("bench_fanout_server.py"))
MODES = {"redis": ("pubsub", "subscribe"), "cluster": ("cluster", "cluster-subscribe")}
"""Modes of the publishing and the subscribing instance, by the link between them."""
CONNECTED_SECONDS = 30
# Per instance; all together must stay within the five seconds of the contract.
STOP_SECONDS = 2
# For the id of a process's CPU clock (clock_gettime(2)): the inverted process id, followed by three bits for the kind.
CPU_OF_ALL_THREADS = 2


def main() -> None:
    """Runs both instances until SIGTERM or SIGINT."""
    parser = arguments()
    options = parser.parse_args()
    if options.version:
        print(version(options.link))
        return
    if options.tls and options.link != "cluster":
        parser.error("--tls is for --link cluster")
    try:
        sys.exit(Pair(options).run())
    except RuntimeError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def arguments() -> argparse.ArgumentParser:
    """The command line; LINK and TLS are the defaults of their flags."""
    environment = os.environ
    parser = listening_arguments(__doc__, MAX_CONNECTIONS)
    link = environment.get("LINK") or None
    if link is not None and link not in MODES:
        parser.error(f"LINK is {link!r}: set it to one of {', '.join(MODES)}")
    parser.add_argument(
        "--link", choices=list(MODES), default=link, required=link is None, help="link between the instances"
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        default=environment.get("TLS", "") not in ("", "0"),
        help=f"encrypt the cluster link, with certificates that are created in {FOLDER}",
    )
    parser.add_argument(
        "--version", action="store_true", help="print the versions of the engine and of Redis, and exit"
    )
    add_arguments(parser)
    return parser


def version(link: str) -> str:
    """The version of the engine, and of the Redis if it is the link."""
    import wse_server

    return f"{wse_server.__version__} with {redis_version()}" if link == "redis" else str(wse_server.__version__)


class Pair:
    """The processes of the service, and their combined pages and books."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.host = "127.0.0.1" if options.host == "localhost" else options.host
        self.redis: PrivateRedis | None = None
        self.publisher: Child | None = None
        self.subscriber: Child | None = None
        # Why the service ends: a signal (None), or the name of a process that exited.
        self.exits: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def run(self) -> int:
        """Starts all processes, announces one service, and serves until a signal or the exit of a process.

        Raises:
            RuntimeError: the instances did not connect to each other.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            self._start()
            self._wait_until_connected()
            metrics = MetricsPort((self.host, metrics_port(self.options)), self.page)
            metrics.start()
            self._announce(metrics.port)
            ended = self.exits.get()
            metrics.stop()
            if ended is not None:
                print(f"the {ended} ended", file=sys.stderr)
            return 0 if ended is None else 1
        finally:
            self._stop_all()

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.exits.put(None)

    def _start(self) -> None:
        """Starts the instances, the subscriber first, because the publisher needs its address."""
        options = self.options
        publishes, subscribes = MODES[options.link]
        # The instances must not inherit this process's own settings.
        shared = {name: value for name, value in os.environ.items() if name not in INSTANCE_VARIABLES}
        tls_flags: list[str] = []
        if options.link == "redis":
            self.redis = PrivateRedis()
            shared["REDIS_URL"] = self.redis.url
            threading.Thread(target=self._watch, args=("redis", self.redis.process), daemon=True).start()
        else:
            shared["CLUSTER_SECRET"] = secrets.token_hex(32)
        if options.link == "cluster" and options.tls:
            tls_flags = _tls_arguments(generate(Path(FOLDER), [self.host]))
        ports = ["--port", str(options.port), "--max-connections", str(options.max_connections)]
        listens = ["--cluster-port", "0"] if options.link == "cluster" else []
        self.subscriber = self._instance("subscriber", shared, ["--mode", subscribes, *ports, *listens, *tls_flags])
        dials = ["--peers", _reachable(self.subscriber.ready["cluster_address"])] if options.link == "cluster" else []
        ahead = ["--subscriber-metrics", self.subscriber.metrics_address]
        flags = ["--mode", publishes, "--port", "0", "--max-connections", "1", *ahead, *dials, *tls_flags]
        self.publisher = self._instance("publisher", shared, flags + _publisher_arguments(options))

    def _instance(self, name: str, environment: dict[str, str], flags: list[str]) -> Child:
        child = Child([PROGRAM, "--host", self.host, "--metrics-port", "0", *flags], environment)
        threading.Thread(target=self._watch, args=(name, child.process), daemon=True).start()
        child.wait_until_ready()
        return child

    def _watch(self, name: str, process: Any) -> None:
        process.wait()
        self.exits.put(name)

    def _wait_until_connected(self) -> None:
        deadline = time.monotonic() + CONNECTED_SECONDS
        while (page := self._ready())[0] != 200:
            if not self.exits.empty():
                ended = self.exits.get()
                if ended is None:
                    sys.exit(0)
                raise RuntimeError(f"the {ended} ended before both were connected")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not connected within {CONNECTED_SECONDS} s: {page[2].strip()}")
            time.sleep(0.01)

    def _announce(self, metrics: int) -> None:
        assert self.subscriber is not None
        line = {
            "event": "ready",
            "address": self.subscriber.ready["address"],
            "metrics_address": f"{self.host}:{metrics}",
            "pid": os.getpid(),
        }
        print(json.dumps(line), flush=True)

    def page(self, path: str) -> Page:
        """A page of the metrics port: the subscriber's, or a combination of both instances' pages."""
        assert self.publisher is not None
        assert self.subscriber is not None
        both = (self.publisher, self.subscriber)
        try:
            if path == "/healthz":
                return 200, TEXT, "ok\n"
            if path == "/readyz":
                return self._ready()
            if path == "/stats/processes":
                return json_page({"processes": self._processes()})
            if path == "/stats/publisher":
                return _page(path, *self.publisher.get(path))
            if path in ("/stats/links", "/metrics"):
                responses = [child.get(path) for child in both]
                worst = max(responses, key=lambda response: response[0])
                if worst[0] != 200:
                    return _page(path, *worst)
                bodies = [body for _, body in responses]
                return (
                    (200, TEXT, add_metrics(bodies))
                    if path == "/metrics"
                    else json_page(add("", [*map(json.loads, bodies)]))
                )
            return _page(path, *self.subscriber.get(path))
        except OSError as error:
            return 503, TEXT, f"an instance does not answer: {error}\n"

    def _ready(self) -> Page:
        """The page `/readyz`: ready when both instances are, else the response of one that isn't."""
        assert self.publisher is not None
        assert self.subscriber is not None
        try:
            responses = [child.get("/readyz") for child in (self.publisher, self.subscriber)]
        except OSError as error:
            return 503, TEXT, f"an instance does not answer: {error}\n"
        status, body = max(responses, key=lambda response: response[0])
        return status, TEXT, body

    def _processes(self) -> dict[str, dict[str, int]]:
        processes: dict[str, Any] = {
            "publisher": self.publisher,
            "subscriber": self.subscriber,
            "redis": self.redis,
        }
        found = {name: _usage(one.process.pid) for name, one in processes.items() if one is not None}
        return found | {"launcher": _usage(os.getpid())}

    def _stop_all(self) -> None:
        """Stops the publisher first, so that no publications are under way, then the subscriber, then Redis."""
        for child in (self.publisher, self.subscriber):
            if child is not None:
                stop_process(child.process, STOP_SECONDS)
        if self.redis is not None:
            self.redis.stop()
            self.redis.remove()


def _publisher_arguments(options: argparse.Namespace) -> list[str]:
    flags = ["--message-size", str(options.message_size), "--backlog-bytes", str(options.backlog_bytes)]
    flags += ["--publications-per-call", str(options.publications_per_call)]
    if options.rate is not None:
        flags += ["--rate", str(options.rate)]
    return flags + (["--publish-always"] if options.publish_always else [])


def _tls_arguments(tls: Tls) -> list[str]:
    return ["--tls-cert", tls.cert, "--tls-key", tls.key, "--tls-ca", tls.ca]


def _reachable(address: str) -> str:
    """The address for local clients of a listener: loopback if it listens on all interfaces."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in UNSPECIFIED_HOSTS else address


def _usage(pid: int) -> dict[str, int]:
    """CPU time of all threads and current resident memory of a process."""
    try:
        cpu_ns = time.clock_gettime_ns((~pid << 3) | CPU_OF_ALL_THREADS)
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        # The process has just exited, which ends the service, too.
        return {"pid": pid, "cpu_ns": 0, "rss_bytes": 0}
    return {"pid": pid, "cpu_ns": cpu_ns, "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE")}


def _page(path: str, status: int, body: str) -> Page:
    return status, "application/json" if status == 200 and path.startswith("/stats") else TEXT, body


if __name__ == "__main__":
    main()
