"""The WSE engine as a publisher: every connection is a subscriber and gets every message (tests 8 to 12 of the seeds).

The service has the contract of `bench_server.py`, and `/stats/publisher` in addition. `bench_publisher.py` defines what
is published and how fast. Depending on `--mode` it publishes to its own connections, also to those of other instances,
or delivers what another instance publishes; `bench_links.py` connects instances. `bench_fanout_pair.py` starts two.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench_backpressure import Backpressure, Receivers
from bench_links import (
    LINKS,
    MODES,
    TOPIC,
    InstanceClient,
    InstanceClients,
    Interest,
    add_link_arguments,
    check_link_options,
    progress,
)
from bench_metrics import TEXT, MetricsPort, Page, fetch, json_page
from bench_processes import add
from bench_publisher import (
    Publish,
    Publisher,
    SubscriberBooks,
    Subscribers,
    add_arguments,
    at_most,
    one_by_one,
    options_of,
)
from bench_server import Service, listening_arguments, metrics_port, secret_of, token

# The limit of the published benchmarks.
MAX_CONNECTIONS = 150_000
# Most bytes that an instance delivers for others and holds for its slowest subscriber; above it, it stops reading from
# the link. Enough to keep every thread busy.
HAND_ON_BYTES = 4 << 20


def main() -> None:
    """Runs the service until SIGTERM or SIGINT."""
    parser = arguments()
    options = parser.parse_args()
    check_link_options(parser, options)
    secret = secret_of(parser)
    if options.token_only:
        print(token(int(time.time()), secret))
        return
    FanoutService(options, secret).run()


def arguments() -> argparse.ArgumentParser:
    """The command line; MODE is the default of its flag."""
    parser = listening_arguments(__doc__, MAX_CONNECTIONS)
    mode = os.environ.get("MODE") or "broadcast"
    if mode not in MODES:
        parser.error(f"MODE is {mode!r}: set it to one of {', '.join(MODES)}")
    parser.add_argument("--mode", choices=list(MODES), default=mode, help="how messages reach their subscribers")
    add_arguments(parser)
    add_link_arguments(parser)
    return parser


def publish_of(server: Any, link: str | None, per_call: int) -> Publish:
    """The publish function: to all connections of this server; with a link, to all subscribers of the topic.

    With one message per call it is the call that an application makes for a single message.
    """
    if per_call == 1:
        return one_by_one(partial(server.broadcast, TOPIC) if link else server.broadcast_all)
    return at_most(per_call, partial(server.broadcast_many, TOPIC) if link else server.broadcast_all_many)


class TopicBooks(SubscriberBooks):
    """Books that subscribe every connection to the topic when it opens."""

    def __init__(self, subscribers: Subscribers, listen: Callable[[str], object]) -> None:
        super().__init__(subscribers)
        self._listen = listen

    def open(self, key: int | str, connection_id: str) -> int:
        """Subscribes the connection to the topic and starts its books."""
        self._listen(connection_id)
        return super().open(key, connection_id)


class FanoutService(Service):
    """The server, its application, and the publisher: in this process or at another instance."""

    def __init__(self, options: argparse.Namespace, secret: bytes) -> None:
        # The engine's metrics port is internal; the announced port serves its pages.
        inner = argparse.Namespace(**vars(options) | {"metrics_port": 0, "delivery": "batch", "share_of_port": None})
        self.options = options
        self.mode = MODES[options.mode]
        super().__init__(inner, secret)
        self.subscribers = Subscribers()
        self.books = SubscriberBooks(self.subscribers)
        self.link = None
        if self.mode.link:
            self.books = TopicBooks(self.subscribers, partial(self.server.subscribe_connection, topics=[TOPIC]))
            self.link = LINKS[self.mode.link](options)
        self.engine: InstanceClient | None = None
        self.publisher: Publisher | None = None
        self.interest: Interest | None = None
        self.publishing = InstanceClient(options.publisher_metrics) if options.publisher_metrics else None
        self.others = InstanceClients(options.subscriber_metrics) if options.subscriber_metrics else None
        self.metrics = MetricsPort((self.host, metrics_port(options)), self.page)

    def _more_options(self) -> dict[str, Any]:
        # When a subscriber here is slow, publications of others wait in the link.
        return {} if self.mode.publishes else {"max_publish_backlog_bytes": HAND_ON_BYTES}

    def run(self) -> None:
        """Serves clients, and publishes or delivers for others, until a signal."""
        super().run()
        self.metrics.stop()
        for other in (self.engine, self.publishing, self.others):
            if other:
                other.close()

    def page(self, path: str) -> Page:
        """A page of the metrics port: the engine's, extended by those of the publisher and the links."""
        try:
            if path == "/stats/publisher" and (self.publisher or self.publishing):
                return json_page(self._publisher_stats())
            if path == "/stats/links" and self.link:
                return json_page(self._links_of_both())
            if path == "/progress" and self.link:
                return json_page(progress(self._links(), self.server.publish_backlog(), self.subscribers.local))
        except OSError as error:
            return 503, TEXT, f"{error}\n"
        if path == "/readyz" and (self.stopping or not self._is_connected()):
            return 503, TEXT, "stopping\n" if self.stopping else f"not connected: {self.mode.link}\n"
        assert self.server.metrics_port is not None
        status, kind, text = fetch(self.host, self.server.metrics_port, path)
        if path == "/metrics" and status == 200 and self.publisher:
            text += self.publisher.metrics()
        return status, kind, text

    def _publisher_stats(self) -> Any:
        if self.publisher:
            return self.publisher.stats()
        assert self.publishing is not None
        return self.publishing.get("/stats/publisher")

    def _links_of_both(self) -> Any:
        """The sum of this instance's link counters and those of the publishing instance."""
        links = self._links()
        return add("", [links, self.publishing.get("/stats/links")]) if self.publishing else links

    def _links(self) -> Any:
        assert self.engine is not None
        return self.engine.get("/stats/links")

    def _is_connected(self) -> bool:
        return self.link is None or self.link.is_connected(self.server)

    def _started(self) -> None:
        """Called when the server listens: connects links and starts publishing."""
        # Requests are frequent, so they share one connection.
        self.engine = InstanceClient(f"{self.host}:{self.server.metrics_port}")
        if self.link:
            self.link.connect(self.server)
        if self.mode.publishes:
            self._publish()
        self.metrics.start()

    def _publish(self) -> None:
        options = options_of(self.options)
        receivers = Receivers(self.others.backlogs) if self.others else None
        backpressure = Backpressure(self.server, options.backlog_bytes, receivers)
        publish = publish_of(self.server, self.mode.link, options.per_call)
        self.publisher = Publisher(self.options.mode, publish, self.subscribers, backpressure, options)
        self.publisher.start()
        if self.link:
            self.interest = Interest(self.server, self.subscribers, self.others)
            self.interest.start()

    def _announced_metrics_port(self) -> int:
        return self.metrics.port

    def _announced(self) -> dict[str, object]:
        """The cluster address for other instances, if there is one."""
        port = self.server.cluster_port if self.mode.link == "cluster" else None
        return {"cluster_address": f"{self.host}:{port}"} if port else {}

    def _before_stop(self) -> None:
        """Stops publishing before the server closes its connections."""
        if self.interest:
            self.interest.stop()
        if self.publisher:
            self.publisher.stop()


if __name__ == "__main__":
    main()
