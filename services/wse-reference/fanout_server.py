"""PyPI `wse-server` 2.5.1 as a publisher: `server.py`, whose drain mode is on, with the publisher of our own server.

The comparison is between servers: what is published, and how fast, is in `../wse-server/bench_publisher.py` for both.
It counts nothing of what it sends to many, so nothing can hold a flood back: `backpressure` is `none`, its queue grows
as long as the flood lasts, and the age of what arrives with it; unless OFFERED_DELIVERIES says what it is given
(`offer`). README.md says what that means for figures.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from server import Service, arguments, metrics_port_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wse-server"))
from bench_backpressure import Backpressure, Offer
from bench_publisher import (
    Publisher,
    SubscriberBooks,
    Subscribers,
    add_arguments,
    one_by_one,
    options_of,
    positive,
)

MODES = ("broadcast",)


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    parser = arguments(__doc__)
    mode = os.environ.get("MODE") or MODES[0]
    if mode not in MODES:
        parser.error(f"MODE is {mode!r}: set it to one of {', '.join(MODES)}")
    parser.add_argument("--mode", choices=MODES, default=mode, help="how messages reach their subscribers")
    # It has no call for several messages.
    add_arguments(parser, most_per_call=1)
    parser.add_argument(
        "--offered-deliveries",
        type=positive,
        default=os.environ.get("OFFERED_DELIVERIES") or None,
        help="deliveries per second of a flood; without it, as many messages as the server's queue accepts",
    )
    FanoutService(parser.parse_args()).run()


class FanoutService(Service):
    """The server, its application, and the publisher between them."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options.port, metrics_port_of(options), options.max_connections, discard=False)
        self.subscribers = Subscribers()
        self.books = SubscriberBooks(self.subscribers)
        publishing = options_of(options)
        offered = options.offered_deliveries
        offer = Offer(offered, lambda: self.subscribers.count) if offered else None
        backpressure = Backpressure(self.server, publishing.backlog_bytes, offer=offer)
        publish = one_by_one(self.server.broadcast_all)
        self.publisher = Publisher(options.mode, publish, self.subscribers, backpressure, publishing)

    def pages(self) -> dict[str, Callable[[], str]]:
        """The server's, and the publisher's with them."""
        return super().pages() | {"/stats/publisher": lambda: json.dumps(self.publisher.stats())}

    def metrics(self) -> str:
        """The server's counters, and the publisher's."""
        return super().metrics() + self.publisher.metrics()

    def _started(self) -> None:
        self.publisher.start()

    def _before_stop(self) -> None:
        self.publisher.stop()


if __name__ == "__main__":
    main()
