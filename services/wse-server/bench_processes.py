"""Several servers on one port, presented as one service, to exceed the limits of one process and one interpreter.

Each process is a `bench_server.py` with its own shards, application and books; the kernel distributes clients among
them (SO_REUSEPORT). This process serves no clients: it starts the others, adds up their metrics, and ends when they do.
A message is in the books of exactly one process, so the sums balance if the books of each process do.
"""

import argparse
import http.client
import http.server
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

from bench_server import metrics_port

# Seconds to wait for a response of a process; the harness waits as long for this one's.
RESPONSE_SECONDS = 10
# The contract gives a service five seconds to stop.
STOP_SECONDS = 5
UINT64 = (1 << 64) - 1
# The page of the connections' books, and what separates the processes' cursors in a cursor of the service.
CONNECTIONS = "/stats/connections"
CURSORS = "-"
# Sums of sequence numbers wrap at 2**64; of uptimes the largest is taken.
WRAPPING = ("sequence_sum", "application_sequence_sum")
LARGEST = ("uptime_seconds", "wse_uptime_seconds")


def add(name: str, values: list[Any]) -> Any:
    """Combines the values of several processes for one field: counts are added, and so are those in nested objects."""
    some = [value for value in values if value is not None]
    if not some:
        return None
    if isinstance(some[0], dict):
        names = dict.fromkeys(name for value in some for name in value)
        return {name: add(name, [value.get(name) for value in some]) for name in names}
    if isinstance(some[0], str):
        return some[0]
    if name in LARGEST:
        return max(some)
    return sum(some) & UINT64 if name in WRAPPING else sum(some)


def add_metrics(texts: Iterable[str]) -> str:
    """Combines the Prometheus texts of several processes; values of the same series are added."""
    lines: dict[str, list[int | float]] = {}
    for text in texts:
        for line in text.splitlines():
            # A comment has no value and keeps its position in the first process's text.
            series, value = (line, "") if line.startswith("#") else line.rsplit(" ", 1)
            values = lines.setdefault(series, [])
            if value:
                values.append(int(value) if value.isdigit() else float(value))
    parts = (f"{series} {add(series, values)}" if values else series for series, values in lines.items())
    return "".join(f"{part}\n" for part in parts)


def stop_process(process: subprocess.Popen[Any], timeout_seconds: float) -> int:
    """Sends SIGTERM, and SIGKILL after `timeout_seconds`; returns the exit code."""
    process.terminate()
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class Child:
    """A server process and its metrics port."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, *command, "--stop-with-parent"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.ready: dict[str, Any] = {}
        self.metrics_address = ""

    def wait_until_ready(self) -> None:
        """Waits for the process's ready line and reads its addresses.

        Raises:
            RuntimeError: the process exited without one.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the service ended with {self.process.wait()} before it was ready")
        self.ready = json.loads(line)
        self.metrics_address = self.ready["metrics_address"]

    def get(self, path: str) -> tuple[int, str]:
        """Gets a page of the process's metrics port; returns status and body."""
        connection = http.client.HTTPConnection(self.metrics_address, timeout=RESPONSE_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


class Processes:
    """The processes of a service, and their combined pages and books."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.host = "127.0.0.1" if options.host == "localhost" else options.host
        self.children: list[Child] = []
        # Why the service ends: a signal (None) or a process that exited.
        self.exits: queue.SimpleQueue[Child | None] = queue.SimpleQueue()
        self.pool = ThreadPoolExecutor(options.processes)

    def run(self) -> int:
        """Starts all processes, announces one service, serves until a signal or an exit; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        with self._reserve() as reservation:
            port = reservation.getsockname()[1]
            try:
                self._start(port)
                with self._metrics() as metrics:
                    threading.Thread(target=metrics.serve_forever, daemon=True).start()
                    self._announce(port, metrics.server_address[1])
                    ended = self.exits.get()
                    if ended is not None:
                        print(f"a process of the service ended with {ended.process.wait()}", file=sys.stderr)
                    code = self._stop_all() if ended is None else 1
                    metrics.shutdown()
                    return code
            finally:
                for child in self.children:
                    child.process.kill()
                self.pool.shutdown()

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.exits.put(None)

    def _reserve(self) -> socket.socket:
        """Binds the port without listening, which reserves it and accepts no connections.

        Raises:
            OSError: another program listens on the port.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        address = (self.host, self.options.port)
        # SO_REUSEPORT would also share the port with other programs of this user; a plain bind detects them.
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
        reservation = socket.socket(family)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(address)
        return reservation

    def _start(self, port: int) -> None:
        options, count = self.options, self.options.processes
        shards = max(1, len(os.sched_getaffinity(0)) // count)
        connections_per_process = -(-options.max_connections * 11 // (count * 10))
        program = str(Path(__file__).with_name("bench_server.py"))
        flags = {
            "--host": self.host,
            "--port": port,
            "--metrics-port": 0,
            "--max-connections": connections_per_process,
            "--processes": 1,
            "--share-of-port": shards,
        }
        command = [program, *(str(word) for pair in flags.items() for word in pair)]
        command += ["--echo"] if options.echo else ["--delivery", options.delivery]
        self.children = [Child(command) for _ in range(count)]
        for child in self.children:
            child.wait_until_ready()
            threading.Thread(target=self._watch, args=(child,), daemon=True).start()

    def _watch(self, child: Child) -> None:
        child.process.wait()
        self.exits.put(child)

    def _stop_all(self) -> int:
        for child in self.children:
            child.process.terminate()
        return max(abs(child.process.wait(STOP_SECONDS)) for child in self.children)

    def _announce(self, port: int, metrics: int) -> None:
        line = {
            "event": "ready",
            "address": f"{self.host}:{port}",
            "metrics_address": f"{self.host}:{metrics}",
            "pid": os.getpid(),
        }
        print(json.dumps(line), flush=True)

    def page(self, path: str) -> tuple[int, str, str]:
        """Status, content type and body of a page of the metrics port."""
        if path == "/healthz":
            return 200, "text/plain", "ok\n"
        paths = paths_of(path, len(self.children))
        try:
            responses = list(self.pool.map(lambda child, path: child.get(path), self.children, paths))
        except OSError as error:
            return 503, "text/plain", f"a process does not answer: {error}\n"
        worst = max(status for status, _ in responses)
        bodies = [body for _, body in responses]
        if worst != 200 or path == "/readyz":
            return worst, "text/plain", bodies[0]
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", add_metrics(bodies)
        return 200, "application/json", combine(path, bodies)

    def _metrics(self) -> http.server.ThreadingHTTPServer:
        page = self.page

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = page(self.path)
                data = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Logs nothing, because requests are frequent."""

        return http.server.ThreadingHTTPServer((self.host, metrics_port(self.options)), Handler)


def paths_of(path: str, count: int) -> list[str]:
    """The path to ask each of `count` processes for: a cursor of the service is made of one of each process."""
    page, has_cursor, cursor = path.partition("?since=")
    cursors = cursor.split(CURSORS) if cursor else [""] * count
    if page != CONNECTIONS or not has_cursor:
        return [path] * count
    # Cursors that are not of this service are refused by its processes.
    return [f"{page}?since={cursor}" for cursor in (cursors if len(cursors) == count else [cursor] * count)]


def combine(path: str, bodies: list[str]) -> str:
    """Combines the processes' JSON: books of connections are concatenated, everything else is added."""
    if path.partition("?")[0] != CONNECTIONS:
        return json.dumps(add("", [json.loads(body) for body in bodies]))
    # Not decoded, because there may be many connections. A cursor, if there is one, comes last.
    parts = [body.strip().removeprefix('{"connections":[').removesuffix("}").rpartition("]") for body in bodies]
    cursors = [cursor.removeprefix(',"cursor":').strip('"') for _, _, cursor in parts if cursor]
    cursor = f',"cursor":"{CURSORS.join(cursors)}"' if cursors else ""
    return '{"connections":[' + ",".join(part for part, _, _ in parts if part) + f"]{cursor}}}"
