"""Reads a service: its counters from the metrics port (services/README.md), its CPU and memory from the kernel."""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TypeVar

from bench_format.schemas import ConnectionBook, ConnectionBooks, Reading, ServiceStats
from bench_format.wire import FormatError, decode

from .clock import monotonic_ns, unix_ns, wait_until
from .machine import Usage, listener_of, usage

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.02
# A service whose counters haven't changed for this long has settled, even if messages are missing.
SETTLED_NS = 1_000_000_000
NOT_FOUND = 404


class ServiceError(Exception):
    """The metrics port doesn't follow its contract; the text names the URL and what to check."""


class NoSuchPathError(ServiceError):
    """The service doesn't have this path of the contract."""


class Service:
    """A client of a service's metrics port."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        self.url = url.rstrip("/")
        self.pid = listener_of(parts.port or 80) if is_local else None
        self._at_rest_bytes: int | None = None
        # The cursor of the last reading of the connections' books; empty for a service without cursors.
        self._cursor = ""
        # Never use a proxy for a service.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def cpus(self) -> frozenset[int]:
        """The CPUs on which the service may run; empty when unknown."""
        try:
            return frozenset() if self.pid is None else frozenset(os.sched_getaffinity(self.pid))
        except OSError:
            return frozenset()

    def read(self) -> Reading:
        """Takes one reading. Time and CPU are the mean of before the request and after the response."""
        requested_ns, before = unix_ns(), self._usage()
        stats = self._get("/stats", ServiceStats)
        responded_ns, after = unix_ns(), self._usage()
        return Reading(
            unix_ns=(requested_ns + responded_ns) // 2,
            # Unknown when the service runs on another machine.
            pid=self.pid if after else None,
            cpu_ns=(before.cpu_ns + after.cpu_ns) // 2 if before and after else None,
            rss_bytes=after.rss_bytes if after else None,
            cpu_limit=float(len(self.cpus())) if after else None,
            throttled_periods=None,
            stats=stats,
        )

    def at_rest(self, before: Reading) -> int | None:
        """The service's memory in bytes before its first connection: the lowest value before any trial of this run."""
        readings = [one for one in (self._at_rest_bytes, before.rss_bytes) if one is not None]
        self._at_rest_bytes = min(readings, default=None)
        return self._at_rest_bytes

    def read_at(self, moment_ns: int) -> Reading:
        """Takes a reading at a time of the monotonic clock, in nanoseconds."""
        wait_until(moment_ns)
        return self.read()

    def settled(self, before: Reading, expected: int, timeout_ns: int) -> Reading:
        """Waits until the service has received `expected` more messages than at `before` and all are accounted for.

        An application counts a message shortly after it takes it from the queue. Also returns when the counters stop
        changing, and after `timeout_ns`.
        """
        deadline_ns = monotonic_ns() + timeout_ns
        last, since_ns = None, monotonic_ns()
        while True:
            now = self.read()
            received = now.stats.messages.received - before.stats.messages.received
            messages, application = now.stats.messages, now.stats.application
            counted = application is None or application.delivered >= messages.delivered
            counters = (messages, application, now.stats.connections)
            if counters != last:
                last, since_ns = counters, monotonic_ns()
            is_unchanged = monotonic_ns() - since_ns > SETTLED_NS
            if (
                (received >= expected and not messages.queued and counted)
                or is_unchanged
                or monotonic_ns() >= deadline_ns
            ):
                return now
            time.sleep(POLL_SECONDS)

    def connections(self) -> list[ConnectionBook] | None:
        """The books of the open connections, and of those that have closed since the last reading.

        `None` when the service has only totals. A connection that closed during the last reading may be returned again.
        """
        try:
            books = self._get(f"/stats/connections?since={self._cursor}", ConnectionBooks)
        except NoSuchPathError:
            return None
        self._cursor = books.cursor or ""
        return books.connections

    def _usage(self) -> Usage | None:
        return None if self.pid is None else usage(self.pid)

    def _get(self, path: str, kind: type[T]) -> T:
        try:
            with self._opener.open(self.url + path, timeout=TIMEOUT_SECONDS) as response:
                return decode(kind, json.load(response), path)
        except FormatError as error:
            raise ServiceError(f"{self.url}{path} is not what services/README.md says: {error}") from error
        except urllib.error.HTTPError as error:
            with error:
                failure = NoSuchPathError if error.code == NOT_FOUND else ServiceError
                raise failure(f"failed to read {self.url}{path}: it answers {error.code}") from error
        except OSError as error:
            message = f"failed to read {self.url}{path}: {error}; is --stats-url the service's metrics port?"
            raise ServiceError(message) from error
