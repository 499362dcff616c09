"""What is published and how fast it may be, without a server."""

import itertools
import json
import time
from collections.abc import Callable

import pytest

import bench_publisher
from bench_publisher import (
    BURST_MESSAGES,
    Backpressure,
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
    """A server that knows its own backlog."""

    backlog = 0

    def publish_backlog(self) -> int:
        """In bytes."""
        return self.backlog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Time that passes only when told to, in nanoseconds."""
    now = [1]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    return lambda passed: now.__setitem__(0, now[0] + passed)


def test_a_message_is_the_one_of_the_published_benchmarks() -> None:
    assert Message().text(7, 1_700_000_000_000_000) == PLAIN


@pytest.mark.parametrize("size", [110, 200, 65_536])
def test_a_longer_message_has_exactly_the_size_asked_for(size: int) -> None:
    text = Message(size).text(123_456, 1_700_000_000_000_000)
    assert len(text) == size
    assert json.loads(text)["p"] | {"pad": ""} == json.loads(PLAIN)["p"] | {"seq": 123_456, "pad": ""}


def test_a_message_that_is_longer_anyway_is_not_cut() -> None:
    assert Message(len(PLAIN) + 8).text(7, 1_700_000_000_000_000) == PLAIN
    assert len(Message(len(PLAIN) + 9).text(7, 1_700_000_000_000_000)) == len(PLAIN) + 9


def test_a_server_that_tells_its_backlog_is_believed() -> None:
    server = Telling()
    backpressure = Backpressure(server, LIMIT, lambda: 0)
    assert (backpressure.kind, backpressure.room(10, 100)) == ("engine", 10)
    server.backlog = LIMIT - 1
    assert backpressure.room(10, 100) == 1
    server.backlog = LIMIT
    assert backpressure.room(10, 100) == 0


def test_a_backlog_is_counted_from_what_was_written_and_dropped(clock: Callable[[int], None]) -> None:
    settled = [500]
    backpressure = Backpressure(object(), LIMIT, lambda: settled[0])
    assert (backpressure.kind, backpressure.room(10, 100)) == ("counters", 10)
    backpressure.published(10, 10)
    assert backpressure.room(10, 100) == 0
    settled[0] += 40
    assert backpressure.room(10, 100) == 4, "6 messages to 10 subscribers are left"
    clock(1)


def test_a_count_that_others_came_into_begins_anew(clock: Callable[[int], None]) -> None:
    settled = [0]
    backpressure = Backpressure(object(), LIMIT, lambda: settled[0])
    backpressure.room(10, 100)
    backpressure.published(10, 10)
    assert backpressure.room(11, 100) == 10, "somebody came"
    backpressure.published(9, 11)
    assert backpressure.room(11, 100) == 1, "9 messages to 11 subscribers are left"
    settled[0] = 1000
    assert backpressure.room(11, 100) == 10, "more was written than published: hellos"
    clock(1)


def test_a_backlog_that_stands_still_does_not_hold_the_flood_for_ever(clock: Callable[[int], None]) -> None:
    backpressure = Backpressure(object(), LIMIT, lambda: 0)
    backpressure.room(10, 100)
    backpressure.published(10, 10)
    assert backpressure.room(10, 100) == 0
    clock(bench_publisher.STUCK_NS + 1)
    assert backpressure.room(10, 100) == 10


def test_messages_that_are_handed_over_together_are_those_that_would_be_one_by_one() -> None:
    for size in (0, 150):
        message = Message(size)
        assert message.texts(range(98, 102), 1234) == [message.text(sequence, 1234) for sequence in range(98, 102)]


def test_without_any_figure_nothing_holds_a_flood_and_it_says_so() -> None:
    backpressure = Backpressure(object(), LIMIT)
    backpressure.published(1_000_000, 1000)
    assert (backpressure.kind, backpressure.room(1000, 100)) == ("none", BURST_MESSAGES)


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


def test_a_server_that_blocks_makes_a_paced_publisher_late_and_not_slow() -> None:
    published: list[dict[str, int]] = []
    subscribers = Subscribers()

    def publish(text: str) -> None:
        published.append(json.loads(text)["p"])
        if len(published) == 1:
            # As long as five messages.
            time.sleep(0.05)
        if len(published) == 20:
            subscribers.add(-1)

    each, options = one_by_one(publish), Options(100.0, 0, 1, False)
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
    late, most = stats["late"], stats["lateness_max_us"]
    assert isinstance(late, int)
    assert isinstance(most, int)
    assert late >= 4
    assert most >= 40_000
