"""Starts several processes of a service and presents them as one service, as replicas behind a load balancer would be.
`ladder` starts this program for a ladder with `replicas` in its plan.

Usage: replicas.py COUNT COMMAND [ARGUMENT...]

Each process has its own port and an equal part of this process's CPUs. The ready line lists all addresses, separated
by commas. `/stats` on the metrics port sums the counters of all processes. When one process ends, this program ends the
others. It uses only Python's standard library.
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
# A service gets five seconds to end after SIGTERM (services/README.md); then it gets SIGKILL.
STOP_SECONDS = 5.5
READ_SECONDS = 10


class Replica:
    """One process of the service."""

    def __init__(self, command: Sequence[str], cpus: set[int]) -> None:
        def prepare() -> None:
            # The kernel sends SIGTERM to the replica when this process ends, for any reason.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            os.sched_setaffinity(0, cpus)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())

        # PORT and METRICS_PORT of the environment are meant for this process; the kernel chooses each replica's ports.
        environment = os.environ | {"PORT": "0", "METRICS_PORT": "0"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=prepare)
        self.ready: dict[str, Any] = {}

    def wait_until_ready(self) -> None:
        """Waits for the ready line on standard output. Later output is read and discarded, so that the pipe can't fill.

        Exits if the process ends before it prints the line.
        """
        assert self.process.stdout is not None
        # Lines before the ready line, such as a banner, are skipped.
        line = next((line for line in self.process.stdout if line.startswith("{")), "")
        if not line:
            sys.exit(f"replicas: {self.process.args!r} ended with status {self.process.wait()} before it was ready")
        self.ready = json.loads(line)
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def get(self, path: str) -> bytes:
        """The body of a page of the replica's metrics port; raises an OSError if the request fails."""
        with urllib.request.urlopen(f"http://{self.ready['metrics_address']}{path}", timeout=READ_SECONDS) as response:
            page: bytes = response.read()
        return page


def parts(cpus: Sequence[int], count: int) -> list[set[int]]:
    """The CPUs of each of `count` processes: equal parts, or all of them where there are fewer CPUs than processes."""
    if len(cpus) < count:
        return [set(cpus)] * count
    each = len(cpus) // count
    return [set(cpus[index * each : (index + 1) * each]) for index in range(count)]


def add(first: Any, second: Any) -> Any:
    """The sum of two readings: numbers are added; other values, such as names and versions, are those of the first."""
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
    """The counters of all replicas, summed, in the form of one service's `/stats`."""
    readings = [json.loads(replica.get("/stats")) for replica in replicas]
    total: dict[str, Any] = reduce(add, readings)
    # All replicas end together, so a restart of one is a restart of this process, whose age is reported.
    return total | {"uptime_seconds": time.monotonic() - began}


class Handler(BaseHTTPRequestHandler):
    """Handles requests to the metrics port: readiness of all replicas, and the sum of their counters."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    server: Metrics

    def do_GET(self) -> None:
        """Responds with the page of all replicas together, or with status 503 if one of them doesn't respond."""
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
        """Logs nothing: a line for each request has no reader."""


class Metrics(ThreadingHTTPServer):
    """The HTTP server of the common metrics port; it serves in a thread of its own."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], replicas: Sequence[Replica]) -> None:
        super().__init__(address, Handler)
        self._replicas = replicas
        self._began = time.monotonic()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def page(self, path: str) -> tuple[int, bytes]:
        """HTTP status and body of the page at a path."""
        if path in ("/healthz", "/readyz"):
            return 200, b"".join({replica.get(path) for replica in self._replicas})
        if path == "/stats":
            return 200, json.dumps(stats(self._replicas, self._began)).encode()
        return 404, b"not found\n"


def stop(replicas: Sequence[Replica]) -> int:
    """Ends all replicas, with SIGKILL after `STOP_SECONDS`. Returns the first exit status that isn't 0, else 0."""
    for replica in replicas:
        if replica.process.poll() is None:
            replica.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for replica in replicas:
        try:
            replica.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            replica.process.kill()
            replica.process.wait()
    return next((replica.process.returncode for replica in replicas if replica.process.returncode), 0)


def main() -> int:
    """Starts the replicas and serves their sum until SIGTERM or SIGINT, or until one of them ends."""
    # `sigwait` takes these signals below. Until then they stay pending.
    handled_signals = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, handled_signals)
    count, command = int(sys.argv[1]), sys.argv[2:]
    replicas = [Replica(command, cpus) for cpus in parts(sorted(os.sched_getaffinity(0)), count)]
    for replica in replicas:
        replica.wait_until_ready()
    host = os.environ.get("HOST", "127.0.0.1")
    metrics = Metrics((host, int(os.environ.get("METRICS_PORT", "0"))), replicas)
    ready = {
        "event": "ready",
        "address": ",".join(replica.ready["address"] for replica in replicas),
        "metrics_address": f"{host}:{metrics.server_port}",
        "pid": os.getpid(),
    }
    print(json.dumps(ready), flush=True)
    # SIGCHLD also arrives when a replica is stopped or continued, which is not its end.
    while signal.sigwait(handled_signals) == signal.SIGCHLD and all(
        replica.process.poll() is None for replica in replicas
    ):
        pass
    return stop(replicas)


if __name__ == "__main__":
    sys.exit(main())
