"""The fan-out service as a process: its publications, their subscribers, and its books."""

import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from harness import wait_until
from service import Service
from websockets.sync.client import ClientConnection

PROGRAM = Path(__file__).resolve().parents[1] / "bench_fanout_server.py"


class Fanout(Service):
    """A started fan-out service."""

    program = PROGRAM

    def publisher(self) -> dict[str, Any]:
        """The publisher's books, from `/stats/publisher`."""
        stats: dict[str, Any] = self.get("/stats/publisher")
        return stats


@pytest.fixture
def start() -> Iterator[Callable[..., Fanout]]:
    """Starts fan-out services; stops them after the test."""
    started: list[Fanout] = []

    def start(*arguments: str, **environment: str) -> Fanout:
        started.append(Fanout(*arguments, **environment))
        return started[-1]

    yield start
    for service in started:
        service.kill()


@contextmanager
def subscriber(service: Fanout) -> Iterator[ClientConnection]:
    """A connection that ends without a close handshake, which would wait because a flood fills the socket."""
    connection = service.connect()
    try:
        yield connection
    finally:
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)


def ticks(connection: ClientConnection, number: int) -> list[dict[str, Any]]:
    """Receives the next published messages."""
    found: list[dict[str, Any]] = []
    while len(found) < number:
        message = json.loads(connection.recv(10))
        if message["t"] == "fanout_tick":
            found.append(message["p"])
    return found


def test_every_subscriber_gets_every_message_in_order(start: Callable[..., Fanout]) -> None:
    service = start("--rate", "2000")
    with subscriber(service) as first, subscriber(service) as second:
        for connection in (first, second):
            received = ticks(connection, 500)
            assert [tick["seq"] for tick in received] == list(range(received[0]["seq"], received[0]["seq"] + 500))
            stamps = [tick["ts_us"] for tick in received]
            assert {later - earlier for earlier, later in itertools.pairwise(stamps)} == {500}


def test_it_publishes_only_while_there_are_subscribers(start: Callable[..., Fanout]) -> None:
    service = start("--rate", "1000")
    assert service.publisher()["published"] == 0
    with subscriber(service) as connection:
        ticks(connection, 10)
    wait_until(lambda: not service.publisher()["publishing"])
    rest = service.publisher()
    with subscriber(service) as connection:
        again = ticks(connection, 1)
    assert again[0]["seq"] == rest["published"], "numbers go on where they ended"


def test_the_books_count_the_publications(start: Callable[..., Fanout]) -> None:
    service = start("--rate", "1000", "--message-size", "150")
    with subscriber(service) as connection:
        assert all("pad" in tick for tick in ticks(connection, 100))
    wait_until(lambda: not service.publisher()["publishing"])
    stats = service.publisher()
    assert (stats["mode"], stats["rate_per_second"], stats["backpressure"]) == ("broadcast", 1000, "schedule")
    assert (stats["first_sequence"], stats["last_sequence"]) == (0, stats["published"] - 1)
    assert stats["bytes"] == 150 * stats["published"]
    assert stats["publishing_seconds"] > 0.09
    assert f"\npublisher_messages_total {stats['published']}\n" in service.get("/metrics")


def test_a_flood_is_limited_by_unwritten_bytes(start: Callable[..., Fanout]) -> None:
    service = start("--backlog-bytes", "100000")
    with subscriber(service) as connection:
        last = ticks(connection, 20_000)[-1]
        ahead = service.publisher()["published"] - last["seq"]
        assert service.publisher()["backpressure"] == "engine"
        # At most the backlog limit, plus the buffers of kernel and client.
        assert ahead * 100 < 100_000 + (32 << 20)


@pytest.mark.parametrize(("per_call", "reported"), [("1", 1), ("3", 3), (None, 256)])
def test_a_flood_comes_whole_and_in_order_whatever_a_call_publishes(
    start: Callable[..., Fanout], per_call: str | None, reported: int
) -> None:
    service = start(**({"PUBLICATIONS_PER_CALL": per_call} if per_call else {}))
    with subscriber(service) as connection:
        numbers = [tick["seq"] for tick in ticks(connection, 5000)]
        assert numbers == list(range(numbers[0], numbers[0] + 5000))
        assert f"\npublisher_publications_per_call {reported}\n" in service.get("/metrics")


@pytest.mark.parametrize("per_call", ["0", "257", "-1", "many"])
def test_a_number_of_publications_per_call_out_of_range_is_refused_with_the_range(per_call: str) -> None:
    command = [sys.executable, str(PROGRAM), f"--publications-per-call={per_call}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{per_call} is not a number of messages per call: give 1 to 256" in done.stderr


def test_all_that_was_sent_was_received(start: Callable[..., Fanout]) -> None:
    service = start("--rate", "5000")
    with subscriber(service) as connection:
        ticks(connection, 1000)
        messages = 1 + 1000
        # The connection's own thread reads at the same time, and may send replies.
        with connection.protocol_mutex:
            connection.protocol.send_close(1000)
            connection.socket.sendall(b"".join(connection.protocol.data_to_send()))
        messages += sum(1 for _ in connection)
    wait_until(lambda: service.get("/stats")["connections"]["open"] == 0)
    assert service.get("/stats")["messages"]["sent"] == messages
    page = service.get("/stats/connections?since=")
    assert [book["sent"] for book in page["connections"]] == [messages]
    assert service.get(f"/stats/connections?since={page['cursor']}")["connections"] == []


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    done = subprocess.run([sys.executable, PROGRAM, "--mode", "multi"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'multi' (choose from " in done.stderr
    assert all(mode in done.stderr for mode in ("broadcast", "pubsub", "subscribe", "cluster", "cluster-subscribe"))


def test_a_signal_stops_the_service_during_a_flood(start: Callable[..., Fanout]) -> None:
    service = start()
    with subscriber(service) as connection:
        ticks(connection, 100)
        assert service.stop() == 0
