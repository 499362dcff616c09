"""The WSE engine as a service for benchmarks: contract in `services/README.md`, loop in `bench_application.py`.

It has no measuring code. The default secret is public on purpose: it is that of the published benchmarks. Set
JWT_SECRET where others can reach the port. With --processes N it runs N servers on one port with combined books
(`bench_processes.py`); with --echo it accepts all clients and sends every message back, for conformance tests.
"""

import argparse
import base64
import gc
import hashlib
import hmac
import json
import os
import resource
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from bench_application import Books, count_events, count_packed, deliver_until

SECRET = b"bench-secret-key-for-testing-only"
# RFC 7518, section 3.2: a key for HS256 must be at least as long as the hash.
MIN_SECRET_BYTES = 32
ISSUER = AUDIENCE = "wse-bench"
TOKEN_SECONDS = 3600
# The published benchmarks expect the metrics port 1000 above the service's port.
METRICS_OFFSET = 1000
# A batch of 1,024 small messages as bytes objects fits into a second-level cache.
BATCH_MESSAGES = 1024
DRAIN_MS = 50
# Conformance tests send messages of up to 16 MiB.
ECHO_MESSAGE_BYTES = 16 << 20


def main() -> None:
    """Runs the service until SIGTERM or SIGINT."""
    parser = arguments()
    options = parser.parse_args()
    secret = secret_of(parser)
    if options.token_only:
        print(token(int(time.time()), secret))
        return
    if options.echo:
        options.delivery = "echo"
    if options.processes > 1:
        from bench_processes import Processes

        sys.exit(Processes(options).run())
    Service(options, secret).run()


def secret_of(parser: argparse.ArgumentParser) -> bytes:
    """The secret of tokens. It is not a flag, because all users of a machine can see command lines."""
    secret = os.environ.get("JWT_SECRET", "").encode() or SECRET
    if len(secret) < MIN_SECRET_BYTES:
        parser.error(f"JWT_SECRET has {len(secret)} bytes: HS256 needs at least {MIN_SECRET_BYTES}")
    return secret


def listening_arguments(description: str | None, max_connections: int) -> argparse.ArgumentParser:
    """A command line with the flags for addresses; HOST, PORT and METRICS_PORT are their defaults."""
    environment = os.environ
    parser = argparse.ArgumentParser(description=description)
    host = environment.get("HOST") or "127.0.0.1"
    parser.add_argument("--host", default=host, help="address to listen on, also for metrics")
    parser.add_argument("--port", type=int, default=int(environment.get("PORT", "5006")), help="0 lets the kernel pick")
    metrics = environment.get("METRICS_PORT")
    parser.add_argument(
        "--metrics-port", type=int, default=int(metrics) if metrics else None, help="default: the port + 1000"
    )
    parser.add_argument(
        "--max-connections", type=int, default=max_connections, help="connections beyond it are refused"
    )
    parser.add_argument("--token-only", action="store_true", help="print a token for clients and exit")
    # For one of several processes: exit when standard input closes.
    parser.add_argument("--stop-with-parent", action="store_true", help=argparse.SUPPRESS)
    return parser


def arguments() -> argparse.ArgumentParser:
    """The command line; DELIVERY and PROCESSES are also defaults of their flags."""
    environment = os.environ
    parser = listening_arguments(__doc__, 5000)
    processes = int(environment.get("PROCESSES") or 1)
    parser.add_argument(
        "--processes",
        type=_at_least_one,
        default=processes,
        help="servers on the one port, each with its own descriptors; each takes its share of --max-connections and a "
        "tenth, because the kernel spreads connections unevenly",
    )
    choices = ("dict", "batch", "discard")
    delivery = environment.get("DELIVERY", "batch")
    if delivery not in choices:
        parser.error(f"DELIVERY is {delivery!r}: set it to one of {', '.join(choices)}")
    parser.add_argument("--delivery", choices=choices, default=delivery, help="how messages reach the application")
    parser.add_argument(
        "--echo", action="store_true", help="accept all clients without tokens, and send every message back"
    )
    # For one of several processes: the number of its threads.
    parser.add_argument("--share-of-port", type=int, help=argparse.SUPPRESS)
    return parser


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def token(now: int, secret: bytes = SECRET) -> str:
    """An HS256 token for the benchmarks' user, valid for an hour from `now` (seconds since the Unix epoch)."""
    claims = {"sub": "bench-user", "iss": ISSUER, "aud": AUDIENCE, "exp": now + TOKEN_SECONDS, "iat": now}
    parts = [
        _base64(json.dumps(part, separators=(",", ":")).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims)
    ]
    signed = b".".join(parts)
    return b".".join([signed, _base64(hmac.digest(secret, signed, hashlib.sha256))]).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def metrics_port(options: argparse.Namespace) -> int:
    """The metrics port: the configured one, else 1000 above the port, or any port if that is 0."""
    if options.metrics_port is not None:
        return int(options.metrics_port)
    return int(options.port) + METRICS_OFFSET if options.port else 0


class Service:
    """The server, its application, and the loop that delivers messages."""

    def __init__(self, options: argparse.Namespace, secret: bytes) -> None:
        # Imported here, so that --token-only doesn't need the extension module.
        from wse_server import RustWSEServer

        self.host: str = options.host
        self.delivery: str = options.delivery
        self.stops_with_parent: bool = options.stop_with_parent
        self.books = Books()
        self.stopping = False
        echo = self.delivery == "echo"
        self.server = RustWSEServer(
            self.host,
            options.port,
            options.max_connections,
            jwt_secret=None if echo else secret,
            jwt_issuer=ISSUER,
            jwt_audience=AUDIENCE,
            max_message_size=ECHO_MESSAGE_BYTES if echo else 1 << 20,
            delivery="echo" if echo else "discard" if self.delivery == "discard" else "queue",
            share_port=options.share_of_port is not None,
            shards=options.share_of_port,
            metrics_port=metrics_port(options),
            metrics_host=self.host,
            **self._more_options(),
        )

    def _more_options(self) -> dict[str, Any]:
        """Additional options of the server, for subclasses."""
        return {}

    def run(self) -> None:
        """Starts and announces the server, delivers until a signal, stops, and delivers the rest."""
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        if self.stops_with_parent:
            threading.Thread(target=self._stop_with_parent, daemon=True).start()
        self.server.enable_drain_mode()
        if self.delivery in ("batch", "dict"):
            self.server.set_application_stats(self.books.totals, self.books.connections)
        self.server.start()
        self._started()
        self._announce()
        # Objects of the start-up are never garbage and messages have no cycles, so collect rarely and little.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        deliver = self._deliver_events if self.delivery == "dict" else self._deliver_batch
        deliver_until(lambda: self.stopping, deliver)
        self._before_stop()
        self.server.stop()
        while deliver():
            pass

    def _started(self) -> None:
        """Hook for subclasses: called when the server listens, before the ready line is printed."""

    def _before_stop(self) -> None:
        """Hook for subclasses: called before the server closes its connections."""

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True

    def _stop_with_parent(self) -> None:
        # The parent's end of the pipe closes when the parent exits for any reason. Not read through the buffered file,
        # whose lock would keep the interpreter from exiting.
        while os.read(0, 1024):
            pass
        self.stopping = True

    def _announce(self) -> None:
        metrics = f"{self.host}:{self._announced_metrics_port()}"
        line = {
            "event": "ready",
            "address": f"{self.host}:{self.server.port}",
            "metrics_address": metrics,
            "pid": os.getpid(),
            **self._announced(),
        }
        print(json.dumps(line), flush=True)

    def _announced(self) -> dict[str, object]:
        """Additional fields of the ready line, for subclasses."""
        return {}

    def _announced_metrics_port(self) -> int | None:
        return self.server.metrics_port

    def _deliver_batch(self) -> int:
        batch = self.server.drain_batch(BATCH_MESSAGES, DRAIN_MS)
        runs, events = batch.packed(), batch.events()
        with self.books.lock:
            for kind, connection, connection_id, _ in events:
                if kind != "disconnect":
                    self.books.open(connection, connection_id)
            count_packed(runs, self.books)
            for kind, connection, _, _ in events:
                if kind == "disconnect":
                    self.books.close(connection)
        return len(batch)

    def _deliver_events(self) -> int:
        events = self.server.drain_inbound(BATCH_MESSAGES, DRAIN_MS)
        with self.books.lock:
            count_events(events, self.books)
        return len(events)


if __name__ == "__main__":
    main()
