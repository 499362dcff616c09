"""Several processes of a service behind one ready line, as replicas behind a load balancer would be: `ladder` starts it
for a ladder with `replicas` in its plan.

Usage: replicas.py COUNT COMMAND [ARGUMENT...]

Each process has a port of its own and an equal part of this process's CPUs. The ready line names all their addresses,
with commas between them; `/stats` on the metrics port adds up what they count. When one ends, all end. Nothing but
Python's own library.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
# A service gets five seconds to end (services/README.md); then it is told again, and not asked.
PATIENCE_SECONDS = 5.5
READ_SECONDS = 10


class Replica:
    """One process of the service."""

    def __init__(self, command: Sequence[str], cpus: set[int]) -> None:
        def prepare() -> None:
            # The kernel ends it with this process, however that ends.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            os.sched_setaffinity(0, cpus)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())

        # Only this process's own ports are chosen by whoever started it.
        environment = os.environ | {"PORT": "0", "METRICS_PORT": "0"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=prepare)
        self.ready: dict[str, Any] = {}

    def until_ready(self) -> None:
        """Reads its ready line; what it prints after that is nobody's."""
        assert self.process.stdout is not None
        # A banner before it is nobody's.
        line = next((line for line in self.process.stdout if line.startswith("{")), "")
        if not line:
            sys.exit(f"replicas: {self.process.args!r} ended with status {self.process.wait()} before it was ready")
        self.ready = json.loads(line)
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def get(self, path: str) -> bytes:
        """A page of its metrics port."""
        with urllib.request.urlopen(f"http://{self.ready['metrics_address']}{path}", timeout=READ_SECONDS) as answer:
            page: bytes = answer.read()
        return page


def parts(cpus: Sequence[int], count: int) -> list[set[int]]:
    """The CPUs of each of `count` processes: equal parts, or all of them where there are fewer CPUs than processes."""
    if len(cpus) < count:
        return [set(cpus)] * count
    each = len(cpus) // count
    return [set(cpus[place * each : (place + 1) * each]) for place in range(count)]


def add(first: Any, second: Any) -> Any:
    """The sum of two readings: numbers are added, whatever else there is (names, versions) is the first's."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = [*first, *(key for key in second if key not in first)]
        return {
            key: add(first[key], second[key]) if key in first and key in second else (first | second)[key]
            for key in both
        }
    if isinstance(first, bool) or not isinstance(first, int | float):
        return first
    return first + second


def stats(replicas: Sequence[Replica], began: float) -> dict[str, Any]:
    """What all of them counted, as one service tells it."""
    readings = [json.loads(replica.get("/stats")) for replica in replicas]
    total: dict[str, Any] = reduce(add, readings)
    # They end together, so it is this process's age that says whether one was restarted.
    return total | {"uptime_seconds": time.monotonic() - began}


class Handler(BaseHTTPRequestHandler):
    """The metrics port: whether all are ready, and the sum of what they counted."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    server: Metrics

    def do_GET(self) -> None:
        """Answers with what all replicas say; one that doesn't answer is an error."""
        try:
            status, page = self.server.page(self.path)
        except (OSError, ValueError) as error:
            status, page = 503, f"a replica does not answer: {error}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if self.path == "/stats" else "text/plain")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads a line per request."""


class Metrics(ThreadingHTTPServer):
    """The metrics port of all replicas together."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], replicas: Sequence[Replica]) -> None:
        super().__init__(address, Handler)
        self._replicas = replicas
        self._began = time.monotonic()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def page(self, path: str) -> tuple[int, bytes]:
        """Status and body of a path."""
        if path in ("/healthz", "/readyz"):
            return 200, b"".join({replica.get(path) for replica in self._replicas})
        if path == "/stats":
            return 200, json.dumps(stats(self._replicas, self._began)).encode()
        return 404, b"not found\n"


def stop(replicas: Sequence[Replica]) -> int:
    """Ends all of them; the first status that isn't 0, else 0."""
    for replica in replicas:
        if replica.process.poll() is None:
            replica.process.terminate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    for replica in replicas:
        try:
            replica.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            replica.process.kill()
            replica.process.wait()
    return next((replica.process.returncode for replica in replicas if replica.process.returncode), 0)


def main() -> int:
    """Starts the replicas and serves their sum until SIGTERM, or until one of them ends."""
    # Waited for below; until then they wait themselves.
    awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    count, command = int(sys.argv[1]), sys.argv[2:]
    replicas = [Replica(command, cpus) for cpus in parts(sorted(os.sched_getaffinity(0)), count)]
    for replica in replicas:
        replica.until_ready()
    host = os.environ.get("HOST", "127.0.0.1")
    metrics = Metrics((host, int(os.environ.get("METRICS_PORT", "0"))), replicas)
    ready = {
        "event": "ready",
        "address": ",".join(replica.ready["address"] for replica in replicas),
        "metrics_address": f"{host}:{metrics.server_port}",
        "pid": os.getpid(),
    }
    print(json.dumps(ready), flush=True)
    # A stopped replica that goes on is news, too, and no end.
    while signal.sigwait(awaited) == signal.SIGCHLD and all(replica.process.poll() is None for replica in replicas):
        pass
    return stop(replicas)


if __name__ == "__main__":
    sys.exit(main())
