"""Runs PyPI `wse-server` 2.5.1, the reference, under our service contract, with its drain mode on. README.md has the
reasons and lists what the reference can't report.

The application that counts messages is that of our own servers (`../wse-server/bench_application.py`), so that only the
servers differ in a comparison.
"""

import argparse
import gc
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from wse_server._wse_accel import RustWSEServer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wse-server"))
from bench_application import Books, count_events, deliver_until
from bench_server import AUDIENCE, ISSUER, METRICS_OFFSET, SECRET

HOST = "127.0.0.1"
DRAIN_MESSAGES = 1024
DRAIN_MS = 50
# Messages that were taken from the queue are counted within this time.
IDLE_SECONDS = 2 * DRAIN_MS / 1000
START_SECONDS = 10.0


def main() -> None:
    """Runs the service until SIGTERM or SIGINT."""
    parser = arguments(__doc__)
    parser.add_argument("--discard", action="store_true", help="leave drain mode off: messages are parsed and dropped")
    options = parser.parse_args()
    Service(options.port, metrics_port_of(options), options.max_connections, discard=options.discard).run()


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The parser of the command line. PORT and METRICS_PORT of the environment are the defaults of their flags."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "5006")), help="0 lets the kernel pick")
    metrics = os.environ.get("METRICS_PORT")
    parser.add_argument(
        "--metrics-port", type=int, default=int(metrics) if metrics else None, help="default: the port + 1000"
    )
    parser.add_argument("--max-connections", type=int, default=1_000_000, help="connections beyond it are refused")
    return parser


def metrics_port_of(options: argparse.Namespace) -> int:
    """The metrics port: the configured one, else 1000 above the port, or 0 if the kernel chooses the port."""
    if options.metrics_port is not None:
        return int(options.metrics_port)
    return int(options.port) + METRICS_OFFSET if options.port else 0


def free_port() -> int:
    """A port that was free a moment ago: the server takes 0 literally and doesn't report where it listens."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Service:
    """The reference server, the application that reads from it, and its books in the form of our contract."""

    def __init__(self, port: int, metrics_port: int, max_connections: int, *, discard: bool) -> None:
        self.port = port or free_port()
        self.discard = discard
        self.books = Books()
        # Number of all drained events, connects and disconnects included.
        self.drained = 0
        # See `_consumed_and_queued`.
        self.idle_lock = threading.Lock()
        self.last_counts = (0, 0, 0)
        self.answered = 0
        self.started = self.changed_at = time.monotonic()
        self.stopping = False
        self.server = RustWSEServer(
            HOST, self.port, max_connections, jwt_secret=SECRET, jwt_issuer=ISSUER, jwt_audience=AUDIENCE
        )
        self.http = ThreadingHTTPServer((HOST, metrics_port), handler(self))

    def run(self) -> None:
        """Starts the server, prints the ready line, delivers messages until a signal arrives, and stops the server."""
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        if not self.discard:
            self.server.enable_drain_mode()
        self.server.start()
        self._wait_until_listening()
        self._started()
        threading.Thread(target=self.http.serve_forever, name="metrics", daemon=True).start()
        self._announce()
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        deliver_until(lambda: self.stopping, self._deliver)
        self._before_stop()
        self.server.stop()
        while self._deliver():
            pass
        self.http.shutdown()

    def _started(self) -> None:
        """A hook for subclasses: the server listens, and the ready line is not yet printed."""

    def _before_stop(self) -> None:
        """A hook for subclasses: the delivery loop has ended, and the server still runs."""

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True

    def _wait_until_listening(self) -> None:
        """Connects until the server accepts, because its `start()` neither waits nor reports an error."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection((HOST, self.port), 1).close()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise SystemExit(
                        f"nothing listens on {HOST}:{self.port} after {START_SECONDS} s: {error}"
                    ) from error
                time.sleep(0.01)
            else:
                return

    def _announce(self) -> None:
        metrics = f"{HOST}:{self.http.server_address[1]}"
        line = {"event": "ready", "address": f"{HOST}:{self.port}", "metrics_address": metrics, "pid": os.getpid()}
        print(json.dumps(line), flush=True)

    def _deliver(self) -> int:
        events = self.server.drain_inbound(DRAIN_MESSAGES, DRAIN_MS)
        with self.books.lock:
            count_events(events, self.books)
            self.drained += len(events)
        return len(events)

    def _events_lost(self, delivered: int, accepted: int, closed: int) -> int:
        """Number of connects and disconnects that a full queue dropped; the server's count of drops includes them."""
        return max(0, accepted + closed - (self.drained - delivered))

    def stats(self) -> dict[str, object]:
        """The content of `/stats`. The server's counters are read one after another, so it balances only at rest."""
        # The application is read first and `received` last, so that `delivered` never exceeds it.
        delivered, sequence_sum, unnumbered = self.books.totals()
        queued, dropped = self.server.inbound_queue_depth(), self.server.inbound_dropped_count()
        counted = self.counters()
        received, is_open = counted["wse_messages_received_total"], counted["wse_connections"]
        accepted = counted["wse_connections_accepted_total"]
        if queued == 0:
            # With an empty queue, missing events are lost and not on their way.
            dropped -= min(dropped, self._events_lost(delivered, accepted, accepted - is_open))
        messages: dict[str, object] = {"received": received, "malformed": 0, "sent": counted["wse_messages_sent_total"]}
        if self.discard:
            # The reference reports neither what it answered nor what it dropped here; all counts as discarded.
            messages |= {"consumed": 0, "delivered": 0, "dropped": {"discarded": received}, "queued": 0}
        else:
            consumed, queued = self._consumed_and_queued(received, delivered, dropped, queued)
            messages |= {
                "consumed": consumed,
                "delivered": delivered,
                "dropped": {"inbound_overflow": dropped},
                "queued": queued,
            }
        messages["send_dropped"] = {"slow_consumer": counted["wse_slow_consumer_drops_total"]}
        application = {"delivered": delivered, "sequence_sum": sequence_sum, "unnumbered": unnumbered}
        return {
            "service": "wse-reference-discard" if self.discard else "wse-reference",
            "version": version("wse-server"),
            "uptime_seconds": time.monotonic() - self.started,
            "connections": {
                "accepted": accepted,
                "open": is_open,
                # The reference reports no reasons.
                "closed": {"error": accepted - is_open} if accepted > is_open else {},
                "rejected": {
                    "full": counted["wse_connections_rejected_total"],
                    "auth": counted["wse_auth_failures_total"],
                },
            },
            "messages": messages,
            "bytes": {"received": counted["wse_bytes_received_total"], "sent": counted["wse_bytes_sent_total"]},
            "application": None if self.discard else application,
        }

    def _consumed_and_queued(self, received: int, delivered: int, dropped: int, queued: int) -> tuple[int, int]:
        """Of the messages neither delivered nor dropped: how many the server answered itself, and how many are queued.

        The server doesn't count what it answers. While counters change, messages that left the queue may not be counted
        yet, so they are reported as queued. The rest is taken as answered once nothing has changed for `IDLE_SECONDS`.
        """
        counts, remaining = (received, delivered, dropped), received - delivered - dropped
        with self.idle_lock:
            if counts != self.last_counts:
                self.last_counts, self.changed_at = counts, time.monotonic()
            if queued == 0 and time.monotonic() - self.changed_at > IDLE_SECONDS:
                self.answered = max(self.answered, remaining)
            return self.answered, max(0, remaining - self.answered)

    def counters(self) -> dict[str, int]:
        """The server's own Prometheus counters that have no labels, by name."""
        lines = (line.split(" ") for line in self.server.prometheus_metrics().splitlines() if not line.startswith("#"))
        return {name: int(float(value)) for name, value in lines if "{" not in name}

    def metrics(self) -> str:
        """The content of `/metrics`: counters under the contract's names, then the server's own text."""
        text = [f"{name} {value}" for name, value in contract_metrics(self.stats())]
        return "\n".join(text) + "\n" + self.server.prometheus_metrics()

    def pages(self) -> dict[str, Callable[[], str]]:
        """The functions that return the pages of the metrics port, by path.

        There is no `/stats/connections`: the reference doesn't count received messages per connection, so there is
        nothing to compare with the application's books.
        """
        return {
            "/healthz": lambda: "ok\n",
            "/readyz": lambda: "ok\n",
            "/metrics": self.metrics,
            "/stats": lambda: json.dumps(self.stats()),
        }


def contract_metrics(stats: dict[str, object], prefix: str = "service") -> list[tuple[str, object]]:
    """The counters of `/stats` as Prometheus metrics: names from the contract, with their values."""
    rows: list[tuple[str, object]] = []
    for group in ("messages", "connections", "bytes"):
        counters = stats[group]
        assert isinstance(counters, dict)
        for name, value in counters.items():
            gauge = name in ("queued", "open")
            metric = f"{prefix}_{group}_{name}" if gauge else f"{prefix}_{group}_{name}_total"
            if isinstance(value, dict):
                rows += [(f'{metric}{{reason="{reason}"}}', count) for reason, count in value.items()]
            else:
                rows.append((metric, value))
    application = stats["application"]
    if isinstance(application, dict):
        rows.append(("application_messages_delivered_total", application["delivered"]))
        rows.append(("application_sequence_sum", application["sequence_sum"]))
    return rows


def handler(service: Service) -> type[BaseHTTPRequestHandler]:
    """The request handler of the metrics port, bound to this service."""
    pages = service.pages()

    class Handler(BaseHTTPRequestHandler):
        """Responds to GET with a page, and with 503 at `/readyz` while the service stops."""

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            unready = service.stopping and self.path == "/readyz"
            body = (page() if page else f"no page {self.path!r}: try {', '.join(pages)}\n").encode()
            self.send_response(404 if page is None else 503 if unready else 200)
            self.send_header(
                "Content-Type", "application/json" if body.startswith(b"{") else "text/plain; version=0.0.4"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Logs nothing: scrapes are frequent and expected."""

    return Handler


if __name__ == "__main__":
    main()
