"""The messages that are published and their rate, without a server."""

import itertools
import json
import threading
import time

import pytest

from bench_backpressure import BURST_MESSAGES, MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS, Backpressure, Offer
from bench_publisher import (
    Message,
    Options,
    Publisher,
    SubscriberBooks,
    Subscribers,
    one_by_one,
)

PLAIN = '{"c":"U","t":"fanout_tick","p":{"seq":7,"ts_us":1700000000000000,"s":"ES","px":5234.75,"q":2}}'
LIMIT = 1_000


class Telling:
    """A fake server with a backlog that the test sets."""

    backlog = 0

    def publish_backlog(self) -> int:
        """The configured backlog in bytes."""
        return self.backlog


def test_a_message_is_the_one_of_the_published_benchmarks() -> None:
    assert Message().text(7, 1_700_000_000_000_000) == PLAIN


@pytest.mark.parametrize("size", [110, 200, 65_536])
def test_a_padded_message_has_exactly_the_requested_size(size: int) -> None:
    text = Message(size).text(123_456, 1_700_000_000_000_000)
    assert len(text) == size
    assert json.loads(text)["p"] | {"pad": ""} == json.loads(PLAIN)["p"] | {"seq": 123_456, "pad": ""}


def test_a_message_longer_than_the_requested_size_is_not_cut() -> None:
    assert Message(len(PLAIN) + 8).text(7, 1_700_000_000_000_000) == PLAIN
    assert len(Message(len(PLAIN) + 9).text(7, 1_700_000_000_000_000)) == len(PLAIN) + 9


def test_a_reported_backlog_is_used() -> None:
    server = Telling()
    backpressure = Backpressure(server, LIMIT)
    assert (backpressure.kind, backpressure.room(100)) == ("engine", 10)
    server.backlog = LIMIT - 1
    assert backpressure.room(100) == 1
    server.backlog = LIMIT
    assert backpressure.room(100) == 0


@pytest.mark.parametrize(
    ("fell", "pause"), [(250, 0.02), (0, MAX_PAUSE_SECONDS), (1, MAX_PAUSE_SECONDS), (LIMIT, 0.005)]
)
def test_a_publisher_without_room_checks_again_when_half_is_expected(
    monkeypatch: pytest.MonkeyPatch, fell: int, pause: float
) -> None:
    now = 1000.0
    monkeypatch.setattr("bench_backpressure.time.monotonic", lambda: now)
    server = Telling()
    server.backlog = LIMIT
    backpressure = Backpressure(server, LIMIT)
    assert (backpressure.room(100), backpressure.pause_seconds) == (0, MIN_PAUSE_SECONDS)
    now, server.backlog = 1000.01, LIMIT - fell
    backpressure.room(100)
    assert backpressure.pause_seconds == pytest.approx(pause)
    # Messages published since then don't count for the speed.
    now, server.backlog = 1000.02, LIMIT
    backpressure.room(100)
    if fell:
        assert backpressure.pause_seconds == pytest.approx(pause)


def test_messages_published_together_are_the_same_as_one_by_one() -> None:
    for size in (0, 150):
        message = Message(size)
        for sequences in (
            range(98, 102),
            range(3),
            range(990, 3010),
            range(1_000_000, 1_000_000),
            range(2**53, 2**53 + 9),
        ):
            assert message.texts(sequences, 1234) == [message.text(sequence, 1234) for sequence in sequences]


def test_without_any_figure_a_flood_is_unlimited_and_reports_it() -> None:
    backpressure = Backpressure(object(), LIMIT)
    assert (backpressure.kind, backpressure.room(100)) == ("none", BURST_MESSAGES)


def test_offers_are_complete_bursts_at_the_pace_of_all_deliveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("bench_backpressure.time.monotonic", lambda: now)
    subscribers = 100
    backpressure = Backpressure(object(), LIMIT, offer=Offer(BURST_MESSAGES * 1000.0, lambda: subscribers))
    backpressure.begin(0)
    offered = [backpressure.room(100)]
    # A burst is due every 100 ms with 100 subscribers, every 200 ms with 200.
    for step in range(1, 41):
        now = 1000.0 + step * 0.05
        subscribers = 100 if step <= 20 else 200
        offered.append(backpressure.room(100))
    assert backpressure.kind == "offer"
    assert set(offered) == {0, BURST_MESSAGES}
    assert (sum(offered[:21]), sum(offered[21:])) == (10 * BURST_MESSAGES, 5 * BURST_MESSAGES)


def test_a_server_that_reports_its_backlog_needs_no_offer() -> None:
    backpressure = Backpressure(Telling(), LIMIT, offer=Offer(1.0, lambda: 1))
    backpressure.begin(0)
    assert (backpressure.kind, backpressure.room(100)) == ("engine", 10)


def test_subscribers_are_those_whose_connections_are_open() -> None:
    subscribers = Subscribers()
    books = SubscriberBooks(subscribers)
    assert not subscribers.wait(0)
    books.open(1, "a")
    books.open(2, "b")
    assert (subscribers.count, subscribers.wait(0)) == (2, True)
    books.close(1)
    books.close(1)
    books.close(3)
    assert subscribers.count == 1


def test_nothing_is_published_while_subscribers_still_arrive() -> None:
    subscribers = Subscribers()
    began = time.monotonic()

    def connect_all() -> None:
        for _ in range(10):
            subscribers.add(1)
            time.sleep(0.02)

    crowd = threading.Thread(target=connect_all)
    crowd.start()
    assert subscribers.wait(30, 0.3)
    assert subscribers.count == 10
    assert time.monotonic() - began >= 0.3
    crowd.join()
    subscribers.add(-10)
    assert not subscribers.wait(0.01)


def test_a_server_that_blocks_makes_a_paced_publisher_late_and_not_slow() -> None:
    published: list[dict[str, int]] = []
    subscribers = Subscribers()

    def publish(text: str) -> None:
        published.append(json.loads(text)["p"])
        if len(published) == 1:
            # As long as the interval of five messages.
            time.sleep(0.05)
        if len(published) == 20:
            subscribers.add(-1)

    each, options = one_by_one(publish), Options(100.0, 0, 1, 1, False)
    publisher = Publisher("broadcast", each, subscribers, Backpressure(object(), 1), options)
    publisher.start()
    subscribers.add(1)
    publisher._thread.join(0.05)
    while subscribers.count:
        publisher._thread.join(0.01)
    publisher.stop()
    stamps = [message["ts_us"] for message in published]
    assert [message["seq"] for message in published] == list(range(20))
    assert {later - earlier for earlier, later in itertools.pairwise(stamps)} == {10_000}
    stats = publisher.stats()
    assert (stats["published"], stats["last_sequence"]) == (20, 19)
    late_count, max_lateness_us = stats["late"], stats["lateness_max_us"]
    assert isinstance(late_count, int)
    assert isinstance(max_lateness_us, int)
    assert late_count >= 4
    assert max_lateness_us >= 40_000
