"""The WSE engine as a publisher: every connection is a subscriber and gets every message (test 8 of the seeds).

The contract is that of `bench_server.py`, whose server this is, with `/stats/publisher` beside it; what is published,
and how fast, is in `bench_publisher.py`.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

from bench_metrics import TEXT, MetricsPort, Page, fetch
from bench_publisher import (
    Backpressure,
    Publish,
    Publisher,
    SubscriberBooks,
    Subscribers,
    add_arguments,
    options_of,
)
from bench_server import Service, listening_arguments, metrics_port, secret_of, token

# As the published benchmarks allow.
MOST_CONNECTIONS = 150_000


def broadcast(server: Any) -> Publish:
    """Every message goes to every connection of this server."""
    publish: Publish = server.broadcast_all_many
    return publish


MODES: dict[str, Callable[[Any], Publish]] = {"broadcast": broadcast}
"""How a message reaches its subscribers, by the name of `--mode`."""


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    parser = arguments()
    options = parser.parse_args()
    secret = secret_of(parser)
    if options.token_only:
        print(token(int(time.time()), secret))
        return
    FanoutService(options, secret).run()


def arguments() -> argparse.ArgumentParser:
    """The command line; MODE is read where its flag is missing."""
    parser = listening_arguments(__doc__, MOST_CONNECTIONS)
    mode = os.environ.get("MODE") or "broadcast"
    if mode not in MODES:
        parser.error(f"MODE is {mode!r}: set it to one of {', '.join(MODES)}")
    parser.add_argument("--mode", choices=list(MODES), default=mode, help="how messages reach their subscribers")
    add_arguments(parser)
    return parser


class FanoutService(Service):
    """The server, its application, and the publisher between them."""

    def __init__(self, options: argparse.Namespace, secret: bytes) -> None:
        # The engine's own metrics port is behind the one that is told.
        inner = argparse.Namespace(**vars(options) | {"metrics_port": 0, "delivery": "batch", "share_of_port": None})
        super().__init__(inner, secret)
        self.subscribers = Subscribers()
        self.books = SubscriberBooks(self.subscribers)
        self.options = options
        self.metrics = MetricsPort((self.host, metrics_port(options)), self.page)

    def run(self) -> None:
        """Serve and publish until a signal."""
        super().run()
        self.metrics.stop()

    def page(self, path: str) -> Page:
        """A page of the metrics port: the engine's, and the publisher's with it."""
        if path == "/stats/publisher":
            return 200, "application/json", json.dumps(self.publisher.stats())
        if path == "/readyz" and self.stopping:
            return 503, TEXT, "stopping\n"
        assert self.server.metrics_port is not None
        status, kind, text = fetch(self.host, self.server.metrics_port, path)
        return status, kind, text + self.publisher.metrics() if path == "/metrics" and status == 200 else text

    def _started(self) -> None:
        """The server listens: from now on there may be subscribers."""
        options = options_of(self.options)
        backpressure = Backpressure(self.server, options.backlog_bytes)
        publish = MODES[self.options.mode](self.server)
        self.publisher = Publisher(self.options.mode, publish, self.subscribers, backpressure, options)
        self.publisher.start()
        self.metrics.start()

    def _announced_metrics_port(self) -> int:
        return self.metrics.port

    def _before_stop(self) -> None:
        """Nothing is published to a server that says goodbye."""
        self.publisher.stop()


if __name__ == "__main__":
    main()
