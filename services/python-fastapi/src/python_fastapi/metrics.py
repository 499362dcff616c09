"""The gateway's books, and the metrics port that serves them: `/healthz`, `/readyz`, `/stats`, `/metrics`.

The books are one object behind one lock, so that every reading balances. A session counts all frames of a visit at
once. The port has its own thread, so that it responds while the event loop is busy.
"""

import json
import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from python_fastapi import NAME, VERSION
from python_fastapi.protocol import FAILURE_KINDS, FRAME_BYTES

LATENESS_BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_FAILURES: Final = FAILURE_KINDS[1:]
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")

type Snapshot = dict[str, Any]


class Books:
    """All counters. They may be changed and read only while `lock` is held."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started_at = time.monotonic()
        self.received = 0
        self.consumed = 0
        self.delivered = 0
        self.frames_waiting = 0
        """Frames that wait for the next batch."""
        self.frames_in_flight = 0
        """Frames of requests in flight."""
        self.sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.accepted = 0
        self.open = 0
        self.requests = 0
        self.answered = 0
        self.abandoned = 0
        self.in_flight = 0
        """Requests in flight, a gauge; `requests` counts all requests that were begun."""
        self.in_flight_per_connection_max = 0
        self.lateness_sum = 0.0
        self.lateness = [0] * (len(LATENESS_BOUNDS) + 1)
        self.dropped: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.failed: Counter[str] = Counter(dict.fromkeys(_FAILURES, 0))
        self.ticks: Counter[str] = Counter(flushed=0, skipped=0, empty=0)

    def tick(self, outcome: str, lateness: float) -> None:
        """Counts a flush tick that ran `lateness` seconds after it was due. The caller holds `lock`."""
        self.ticks[outcome] += 1
        self.lateness[bisect_left(LATENESS_BOUNDS, lateness)] += 1
        self.lateness_sum += lateness

    def snapshot(self) -> Snapshot:
        """Takes `lock` and returns a consistent reading: numbers, and lists and dictionaries of numbers."""
        with self.lock:
            values = {key: value for key, value in vars(self).items() if key not in ("lock", "started_at")}
            copies = {key: dict(value) for key, value in values.items() if isinstance(value, Counter)}
            return {**values, "lateness": list(self.lateness), **copies}


def add(first: Any, second: Any) -> Any:
    """Adds two readings key by key, recursively. A key that one of them lacks counts as 0."""
    if isinstance(first, dict):
        return {key: add(first.get(key, 0), second.get(key, 0)) for key in first | second}
    if isinstance(first, list):
        return [add(left, right) for left, right in zip(first, second, strict=True)]
    return first + second


def total(readings: Iterable[Snapshot]) -> Snapshot:
    """Returns the sum of the readings of several processes or threads, with the largest of their maxima."""
    snapshots = list(readings)
    merged: Snapshot = reduce(add, snapshots)
    return merged | {
        "in_flight_per_connection_max": max(snapshot["in_flight_per_connection_max"] for snapshot in snapshots)
    }


def resident_bytes() -> int:
    """Returns the resident memory of this process, from `/proc/self/statm`."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * _PAGE_BYTES


def stats(reading: Snapshot, uptime_seconds: float) -> dict[str, Any]:
    """Returns the reading in the form of `/stats`."""
    return {
        "service": NAME,
        "version": VERSION,
        "uptime_seconds": uptime_seconds,
        "connections": {key: reading[key] for key in ("accepted", "open", "closed", "rejected")},
        "messages": {
            "received": reading["received"],
            "consumed": reading["consumed"],
            "delivered": reading["delivered"],
            "dropped": reading["dropped"],
            "queued": reading["frames_waiting"] + reading["frames_in_flight"],
            "malformed": 0,
            "sent": reading["sent"],
            "send_dropped": {},
        },
        "bytes": {"received": reading["bytes_received"], "sent": reading["bytes_sent"]},
        "inference": {
            "requests": reading["requests"],
            "answered": reading["answered"],
            "failed": reading["failed"],
            "abandoned": reading["abandoned"],
            "in_flight": reading["in_flight"],
            "ticks_skipped": reading["ticks"]["skipped"],
            "buffered_bytes": (reading["frames_waiting"] + reading["frames_in_flight"]) * FRAME_BYTES,
        },
    }


# Metric name, help text, path of the value in `stats`, and the label if the value is a dictionary.
_FAMILIES: Final = (
    ("service_messages_received_total", "Complete data messages taken from sockets", "messages.received", ""),
    ("service_messages_consumed_total", "Messages that the service answered itself", "messages.consumed", ""),
    ("service_messages_delivered_total", "Frames answered by a partial", "messages.delivered", ""),
    ("service_messages_dropped_total", "Messages not handed over", "messages.dropped", "reason"),
    ("service_messages_queued", "Frames that wait or are in flight", "messages.queued", ""),
    ("service_messages_malformed_total", "Text passed on that was no JSON object", "messages.malformed", ""),
    ("service_messages_sent_total", "Data messages handed to sockets", "messages.sent", ""),
    ("service_messages_send_dropped_total", "Messages not sent", "messages.send_dropped", "reason"),
    ("service_connections_accepted_total", "Connections upgraded and registered", "connections.accepted", ""),
    ("service_connections_open", "Connections open now", "connections.open", ""),
    ("service_connections_closed_total", "Connections that ended", "connections.closed", "reason"),
    ("service_connections_rejected_total", "Connections refused", "connections.rejected", "reason"),
    ("service_bytes_received_total", "WebSocket bytes read from sockets", "bytes.received", ""),
    ("service_bytes_sent_total", "WebSocket bytes written to sockets", "bytes.sent", ""),
    ("service_inference_requests_total", "Requests begun", "inference.requests", ""),
    ("service_inference_answered_total", "Requests whose answer became a partial", "inference.answered", ""),
    ("service_inference_failed_total", "Requests whose frames got an error", "inference.failed", "kind"),
    ("service_inference_abandoned_total", "Requests whose connection ended first", "inference.abandoned", ""),
    ("service_inference_in_flight", "Requests in flight now", "inference.in_flight", ""),
    ("service_buffered_bytes", "Audio held, waiting or in flight", "inference.buffered_bytes", ""),
    ("service_flush_ticks_total", "Flush ticks by what they found", "ticks", "outcome"),
    (
        "service_inference_in_flight_per_connection_max",
        "The most requests that were ever in flight for one connection",
        "in_flight_per_connection_max",
        "",
    ),
    ("service_process_resident_bytes", "Memory of the process", "resident_bytes", ""),
)


def prometheus(reading: Snapshot, uptime_seconds: float, resident: int) -> str:
    """Returns the reading as `/metrics` serves it, in the Prometheus text format; `resident` is in bytes."""
    values: dict[str, Any] = stats(reading, uptime_seconds) | {
        "ticks": reading["ticks"],
        "in_flight_per_connection_max": reading["in_flight_per_connection_max"],
        "resident_bytes": resident,
    }
    lines: list[str] = []
    for name, text, path, label in _FAMILIES:
        value: Any = values
        for part in path.split("."):
            value = value[part]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"]
        if label:
            lines += [f'{name}{{{label}="{key}"}} {count}' for key, count in value.items()]
        else:
            lines.append(f"{name} {value}")
    return "\n".join(lines + _histogram(reading)) + "\n"


def _histogram(reading: Snapshot) -> list[str]:
    name, count = "service_flush_lateness_seconds", 0
    lines = [f"# HELP {name} How late flush ticks ran", f"# TYPE {name} histogram"]
    for bound, within in zip([*map(repr, LATENESS_BOUNDS), "+Inf"], reading["lateness"], strict=True):
        count += within
        lines.append(f'{name}_bucket{{le="{bound}"}} {count}')
    return [*lines, f"{name}_sum {reading['lateness_sum']!r}", f"{name}_count {count}"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # In seconds. Each connection has a thread; an idle connection must not keep it for ever.
    timeout = 30
    server: "MetricsServer"

    def do_GET(self) -> None:
        response = self.server.respond(self.path.partition("?")[0])
        status, kind, text = response or (404, "text/plain", "not found\n")
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Discards the log line that the base class writes for each request."""


class MetricsServer(ThreadingHTTPServer):
    """The metrics port. `read` returns the books and the resident bytes of this process, or the sums of several."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, host: str, port: int, read: Callable[[], tuple[Snapshot, int]], is_ready: Callable[[], bool]
    ) -> None:
        super().__init__((host, port), _Handler)
        self._started_at = time.monotonic()
        self._read = read
        self._is_ready = is_ready
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def respond(self, path: str) -> tuple[int, str, str] | None:
        """Returns the status, content type and body for a path; `None` for an unknown path."""
        uptime = time.monotonic() - self._started_at
        match path:
            case "/healthz":
                return 200, "text/plain", "ok\n"
            case "/readyz":
                return (200, "text/plain", "ready\n") if self._is_ready() else (503, "text/plain", "stopping\n")
            case "/stats":
                return 200, "application/json", json.dumps(stats(self._read()[0], uptime))
            case "/metrics":
                return 200, "text/plain; version=0.0.4", prometheus(*self._prometheus(uptime))
            case "/reading":
                return 200, "application/json", json.dumps(self._read())
        return None

    def _prometheus(self, uptime: float) -> tuple[Snapshot, float, int]:
        reading, resident = self._read()
        return reading, uptime, resident
