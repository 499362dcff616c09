"""Link options, progress of other instances, and how far a publisher may run ahead of them; without a server."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from harness import wait_until

from bench_backpressure import MIN_PAUSE_SECONDS, Backlog, Backpressure, Receivers
from bench_fanout_server import arguments
from bench_links import TOPIC, Cluster, InstanceClients, Interest, check_link_options, progress
from bench_metrics import MetricsPort
from bench_publisher import Subscribers


def parsed(*flags: str) -> Any:
    """A parsed and completed command line."""
    parser = arguments()
    options = parser.parse_args(flags)
    check_link_options(parser, options)
    return options


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The error message for an invalid command line."""
    with pytest.raises(SystemExit):
        parsed(*flags)
    return capsys.readouterr().err


def test_peers_may_have_blanks_or_commas_between_them() -> None:
    peers = ["127.0.0.1:7006", "127.0.0.1:7007", "node:1"]
    assert parsed("--mode", "cluster", "--peers", "127.0.0.1:7006,127.0.0.1:7007", "node:1").peers == peers


def test_the_cluster_port_is_above_that_of_the_clients() -> None:
    assert parsed("--mode", "cluster", "--port", "5006").cluster_port == 7006
    assert parsed("--mode", "cluster", "--port", "0").cluster_port == 0
    assert parsed("--mode", "cluster", "--port", "5006", "--cluster-port", "0").cluster_port == 0


def test_each_flag_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "MODE": "cluster-subscribe",
        "REDIS_URL": "redis://:secret@redis:6379/1",
        "PEERS": "a:1, b:2",
        "CLUSTER_PORT": "7007",
        "CLUSTER_ADDR": "me:7007",
        "TLS_CERT": "cert",
        "TLS_KEY": "key",
        "TLS_CA": "ca",
        "PUBLISHER_METRICS": "p:1",
        "SUBSCRIBER_METRICS": "s:1,s:2",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    options = parsed()
    assert (options.mode, options.redis_url, options.peers) == (settings["MODE"], settings["REDIS_URL"], ["a:1", "b:2"])
    assert (options.cluster_port, options.cluster_addr) == (7007, "me:7007")
    assert (options.tls_cert, options.tls_key, options.tls_ca) == ("cert", "key", "ca")
    assert (options.publisher_metrics, options.subscriber_metrics) == ("p:1", ["s:1", "s:2"])
    monkeypatch.setenv("GENERATE_TLS", "1")
    for name in ("TLS_CERT", "TLS_KEY", "TLS_CA"):
        monkeypatch.delenv(name)
    assert parsed().generate_tls


def test_contradictory_flags_are_refused_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert "belong together" in refused(capsys, "--mode", "cluster", "--peers", "a:1", "--tls-cert", "x")
    assert "publishes itself" in refused(capsys, "--mode", "pubsub", "--publisher-metrics", "a:1")
    tls = ["--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c"]
    assert "give one of them" in refused(capsys, "--mode", "cluster", "--peers", "a:1", *tls, "--generate-tls")


class Peers:
    """A fake server with a number of peers; it records the arguments of `connect_cluster()`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.settings: dict[str, Any] = {}

    def cluster_peers_count(self) -> int:
        """The configured number of peers."""
        return self.count

    def connect_cluster(self, peers: list[str], **settings: Any) -> None:
        """Records the arguments in `settings`."""
        self.settings = settings | {"peers": peers}


@pytest.mark.parametrize("peers", [[], ["a:1"], ["a:1", "b:1"]])
def test_a_cluster_is_connected_when_all_named_peers_are(peers: list[str]) -> None:
    cluster = Cluster(parsed("--mode", "cluster", "--cluster-port", "0", "--peers", *peers))
    assert not cluster.is_connected(Peers(len(peers) - 1))
    assert cluster.is_connected(Peers(len(peers)))


def test_a_cluster_is_connected_with_the_given_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Peers(0)
    monkeypatch.setenv("CLUSTER_SECRET", "s" * 32)
    tls = ["--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c"]
    Cluster(
        parsed("--mode", "cluster", "--peers", "x:1", "--cluster-port", "0", "--cluster-addr", "y:2", *tls)
    ).connect(server)
    files = {"tls_cert": "a", "tls_key": "b", "tls_ca": "c"}
    addresses = {"peers": ["x:1"], "cluster_port": 0, "cluster_addr": "y:2"}
    assert server.settings == files | addresses | {"cluster_secret": "s" * 32}


def test_progress_counts_arrived_and_lost_messages_of_all_links() -> None:
    link = {"delivered": 5, "lost": 2, "received": 5}
    settings = progress({"cluster": link, "redis": None}, 300, 7)
    assert settings == {"delivered": 5, "lost": 2, "backlog_bytes": 300, "subscribers": 7}


class RemoteInstance:
    """A fake subscribing instance with a metrics port."""

    def __init__(self) -> None:
        self.settings = {"delivered": 0, "lost": 0, "backlog_bytes": 0, "subscribers": 0}
        self.request_count = 0
        self.port = MetricsPort(("127.0.0.1", 0), self._page)
        self.port.start()

    @property
    def address(self) -> str:
        """The address of the metrics port."""
        return f"127.0.0.1:{self.port.port}"

    def _page(self, path: str) -> tuple[int, str, str]:
        self.request_count += 1
        return (
            (200, "application/json", json.dumps(self.settings)) if path == "/progress" else (404, "text/plain", "no\n")
        )


@pytest.fixture
def remote_instance() -> Iterator[RemoteInstance]:
    """A fake subscribing instance; stopped after the test."""
    instance = RemoteInstance()
    yield instance
    instance.port.stop()


def test_the_last_progress_of_an_unresponsive_instance_is_used(
    request: pytest.FixtureRequest, remote_instance: RemoteInstance
) -> None:
    others = InstanceClients([remote_instance.address, "127.0.0.1:1"])
    request.addfinalizer(others.close)
    remote_instance.settings |= {"delivered": 9, "lost": 1, "backlog_bytes": 50, "subscribers": 3}
    assert others.backlogs() == [Backlog(10, 50), Backlog(0, 0)]
    assert others.subscribers() == 3


class Interested:
    """A fake server with a number of other interested instances."""

    interest = 0

    def get_topic_interest(self, topic: str) -> int:
        """The configured interest in the topic."""
        assert topic == TOPIC
        return self.interest


def test_a_remote_subscriber_counts_as_long_as_it_is_subscribed(remote_instance: RemoteInstance) -> None:
    server, subscribers = Interested(), Subscribers()
    others = InstanceClients([remote_instance.address])
    interest = Interest(server, subscribers, others)
    interest.start()
    try:
        assert not subscribers.wait(0.2)
        server.interest = 1
        assert subscribers.wait(10)
        remote_instance.settings["subscribers"] = 40
        wait_until(lambda: subscribers.count == 40)
        server.interest = 0
        wait_until(lambda: subscribers.count == 0)
    finally:
        interest.stop()
        others.close()


def test_publishing_waits_until_remote_subscribers_have_stopped_arriving() -> None:
    subscribers = Subscribers()

    def connect_all() -> None:
        for number in range(1, 6):
            subscribers.set_remote(number)
            threading.Event().wait(0.02)

    crowd = threading.Thread(target=connect_all)
    crowd.start()
    assert subscribers.wait(30, 0.3)
    assert subscribers.count == 5
    crowd.join()


class Looked(Receivers):
    """Instances with progress that the test sets; readings are counted and not delayed."""

    min_seconds = max_seconds = 0.0
    timeout_seconds = 1000.0

    def __init__(self, *current: Backlog) -> None:
        self.current = list(current)
        self.readings = 0
        super().__init__(self._now)

    def _now(self) -> list[Backlog]:
        self.readings += 1
        return list(self.current)


LIMIT = 1_000


def test_a_publisher_does_not_run_ahead_of_the_slowest_instance() -> None:
    receivers = Looked(Backlog(500, 0), Backlog(70, 0))
    receivers.begin(2_000)
    assert receivers.backlog(2_000, 100, LIMIT) == 0
    assert receivers.backlog(2_004, 100, LIMIT) == 400
    assert receivers.readings == 1, "the first reading leaves room for a long time"
    receivers.current = [Backlog(510, 0), Backlog(74, 0)]
    assert receivers.backlog(2_010, 100, LIMIT) == 600
    assert receivers.readings == 2


def test_unwritten_messages_of_an_instance_count_in_its_backlog() -> None:
    receivers = Looked(Backlog(0, 0))
    receivers.begin(0)
    receivers.current = [Backlog(10, 700)]
    assert receivers.backlog(12, 100, LIMIT) == 900


def test_waiting_for_a_missing_message_is_bounded() -> None:
    receivers = Looked(Backlog(0, 0))
    receivers.begin(0)
    assert receivers.backlog(10, 100, LIMIT) == 1_000
    receivers.timeout_seconds = 0.0
    receivers.backlog(10, 100, LIMIT)
    assert receivers.backlog(10, 100, LIMIT) == 0


def test_the_pace_of_delivery_determines_the_reading_interval() -> None:
    receivers = Looked(Backlog(0, 0))
    receivers.max_seconds = 1000.0
    receivers.begin(0)
    receivers.current = [Backlog(1, 0)]
    receivers.backlog(10, 100, LIMIT)
    readings = receivers.readings
    # A tenth of the room became free at once; half of it takes five times as long, which has not passed yet.
    receivers._read_at += 1000.0
    receivers.backlog(12, 100, LIMIT)
    assert receivers.readings == readings


class Waiting:
    """A fake server with a backlog that the test sets."""

    backlog = 0

    def publish_backlog(self) -> int:
        """The configured backlog in bytes."""
        return self.backlog


def test_a_flood_is_limited_by_the_local_and_the_remote_backlog() -> None:
    server, receivers = Waiting(), Looked(Backlog(0, 0))
    backpressure = Backpressure(server, LIMIT, receivers)
    backpressure.begin(0)
    assert (backpressure.kind, backpressure.room(100, 0), backpressure.room(100, 7)) == ("receivers", 10, 3)
    server.backlog = 900
    assert backpressure.room(100, 7) == 1
    server.backlog = LIMIT
    readings = receivers.readings
    assert backpressure.room(100, 50) == 0
    assert receivers.readings == readings, "without local room the instances are not read"
    assert backpressure.pause_seconds == MIN_PAUSE_SECONDS


def test_a_publisher_that_waits_for_instances_sleeps_until_the_next_check() -> None:
    receivers = Looked(Backlog(0, 0))
    receivers.min_seconds = receivers.max_seconds = 0.05
    backpressure = Backpressure(Waiting(), LIMIT, receivers)
    backpressure.begin(0)
    receivers._read_at -= 1
    assert backpressure.room(100, 10) == 0
    assert 0.04 < backpressure.pause_seconds <= 0.05
