"""The publisher of the fan-out servers: sends numbered messages to all subscribers and keeps books of them.

It is independent of the server: `bench_fanout_server.py` and the reference's `services/wse-reference/fanout_server.py`
run it, so that both get the same load. With a rate, each message is due at a time that is fixed in advance (open loop),
and carries that time; without a rate it is a flood, limited only by what the server has accepted and not yet written.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from bench_application import Books
from bench_backpressure import BURST_MESSAGES, Backpressure

NS_PER_SECOND = 1_000_000_000
# A message handed over later than this (1 ms) is late. A sleeping thread wakes up within a tenth of it.
LATE_NS = 1_000_000
# Seconds without a new subscriber before publishing starts: a flood to the first ones might keep out the last.
QUIET_SECONDS = 0.25
# About 10,000 messages, each counted once: a flood to 100 subscribers is then 60 ms ahead of the slowest one, a flood
# to 5,000 some seconds. That makes long writes and cheap messages; a smaller value makes them younger and costlier.
DEFAULT_BACKLOG_BYTES = 1 << 20
HEAD = '{"c":"U","t":"fanout_tick","p":{"seq":'
STAMP = ',"ts_us":'
TAIL = ',"s":"ES","px":5234.75,"q":2'
END = "}}"
PAD = ',"pad":"'
# The last three digits of numbers as text. Converting whole numbers would be half of the cost of a message.
THREE_DIGITS = [f"{number:03}" for number in range(1000)]

Publish = Callable[[list[str]], object]
"""A function that hands texts to the server, in order; each is sent to all subscribers."""


def one_by_one(publish: Callable[[str], object]) -> Publish:
    """The publish function that hands over one text per call."""

    def each(texts: list[str]) -> None:
        for text in texts:
            publish(text)

    return each


def at_most(per_call: int, publish: Publish) -> Publish:
    """The publish function that hands over at most `per_call` texts per call."""

    def parts(texts: list[str]) -> None:
        if len(texts) <= per_call:
            publish(texts)
            return
        for start in range(0, len(texts), per_call):
            publish(texts[start : start + per_call])

    return parts


def digits_of(sequences: range) -> Iterator[tuple[str, list[str]]]:
    """Splits successive numbers by thousands: yields the common head of each thousand, and the rest of each number."""
    following, stop = sequences.start, sequences.stop
    while following < stop:
        thousands, rest = divmod(following, 1000)
        end = min(stop - following + rest, 1000)
        if thousands:
            yield f"{HEAD}{thousands}", THREE_DIGITS[rest:end]
        else:
            yield HEAD, [str(number) for number in range(rest, end)]
        following += end - rest


class Message:
    """The published message: that of the reference's benchmarks, padded to `size_bytes` if that is longer."""

    def __init__(self, size_bytes: int = 0) -> None:
        self._size = size_bytes

    def text(self, sequence: int, unix_us: int) -> str:
        """The message with this number; `unix_us` is its due time in microseconds since the Unix epoch."""
        text = f"{HEAD}{sequence}{STAMP}{unix_us}{TAIL}"
        missing = self._size - len(text) - len(PAD) - len(END) - 1
        if missing >= 0:
            return f'{text}{PAD}{"x" * missing}"{END}'
        return text + END

    def texts(self, sequences: range, unix_us: int) -> list[str]:
        """The messages with these numbers, all with the same time."""
        if self._size:
            return [self.text(sequence, unix_us) for sequence in sequences]
        tail = f"{STAMP}{unix_us}{TAIL}{END}"
        return [f"{head}{digits}{tail}" for head, some in digits_of(sequences) for digits in some]


class Subscribers:
    """The number of subscribers, from the application's events; the publisher waits here for the first one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._local = 0
        self._remote = 0
        self._last_arrival = 0.0

    @property
    def count(self) -> int:
        """The subscribers of this instance, plus those that other instances report."""
        return self._local + self._remote

    @property
    def local(self) -> int:
        """The subscribers of this instance."""
        return self._local

    def add(self, number: int) -> None:
        """Changes the number of subscribers of this instance; negative when some left."""
        with self._changed:
            self._local += number
            self._notify(has_arrived=number > 0)

    def set_remote(self, number: int) -> None:
        """Sets the number of subscribers at other instances."""
        with self._changed:
            has_arrived = number > self._remote
            self._remote = number
            self._notify(has_arrived=has_arrived)

    def _notify(self, *, has_arrived: bool) -> None:
        if has_arrived:
            self._last_arrival = time.monotonic()
        self._changed.notify_all()

    def wait(self, seconds: float, quiet_seconds: float = 0.0) -> bool:
        """Waits up to `seconds` until there are subscribers and none came for `quiet_seconds`; returns whether so."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                now = time.monotonic()
                quiet = self._last_arrival + quiet_seconds
                if self.count > 0 and now >= quiet:
                    return True
                if now >= end:
                    return False
                self._changed.wait(min(quiet, end) - now if self.count > 0 else end - now)


class SubscriberBooks(Books):
    """The application's books, which also count the open connections as subscribers."""

    def __init__(self, subscribers: Subscribers) -> None:
        super().__init__()
        self._subscribers = subscribers
        self._local: set[int | str] = set()

    def open(self, key: int | str, connection_id: str) -> int:
        """Starts the books of a connection and counts it as a subscriber."""
        if key not in self._local:
            self._local.add(key)
            self._subscribers.add(1)
        return super().open(key, connection_id)

    def close(self, key: int | str) -> None:
        """Closes the books of a connection, which is no longer a subscriber."""
        if key in self._local:
            self._local.remove(key)
            self._subscribers.add(-1)
        super().close(key)


class Options(NamedTuple):
    """The options of the publisher: its pace, its messages and its backlog."""

    rate: float | None
    """Messages per second; None: a flood."""
    message_bytes: int
    backlog_bytes: int
    per_call: int
    """Most messages in one call; 1 at a pace, where each has its own time."""
    always: bool
    """Publish even without subscribers, as the published benchmarks did."""


class Publisher:
    """Publishes in a thread and keeps books of the publications."""

    def __init__(
        self, mode: str, publish: Publish, subscribers: Subscribers, backpressure: Backpressure, options: Options
    ) -> None:
        self.mode = mode
        self.options = options
        self._publish = publish
        self._subscribers = subscribers
        self._backpressure = backpressure
        self._message = Message(options.message_bytes)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._next = 0
        self._bytes = 0
        self._late = 0
        self._latest_ns = 0
        # Total time of finished periods with subscribers, and the start of the current one.
        self._published_ns = 0
        self._began_ns: int | None = None

    def start(self) -> None:
        """Starts the thread. Unless `always` is set, it publishes when there are subscribers and no more arrive."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stops publishing and waits for the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def stats(self) -> dict[str, object]:
        """The content of `/stats/publisher`; exact while nothing is being published."""
        following, began = self._next, self._began_ns
        now = time.monotonic_ns() - began if began is not None else 0
        return {
            "mode": self.mode,
            "rate_per_second": self.options.rate,
            "backpressure": "schedule" if self.options.rate else self._backpressure.kind,
            "publishing": began is not None,
            "published": following,
            "bytes": self._bytes,
            "first_sequence": 0 if following else None,
            "last_sequence": following - 1 if following else None,
            "publishing_seconds": (self._published_ns + now) / NS_PER_SECOND,
            "late": self._late,
            "lateness_max_us": self._latest_ns // 1000,
        }

    def metrics(self) -> str:
        """The statistics as Prometheus text for `/metrics`."""
        stats = self.stats()
        rows = (
            ("publisher_messages_total", "counter", "Messages published", stats["published"]),
            (
                "publisher_bytes_total",
                "counter",
                "Payload bytes of published messages, each counted once",
                stats["bytes"],
            ),
            ("publisher_next_sequence", "gauge", "Number of the next message", stats["published"]),
            ("publisher_seconds_total", "counter", "Time with at least one subscriber", stats["publishing_seconds"]),
            (
                "publisher_publications_per_call",
                "gauge",
                "Most messages that one call publishes",
                self.options.per_call,
            ),
            ("publisher_late_total", "counter", "Messages published more than 1 ms after they were due", stats["late"]),
            (
                "publisher_lateness_max_seconds",
                "gauge",
                "Largest lateness of a message",
                self._latest_ns / NS_PER_SECOND,
            ),
        )
        return "".join(
            f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{name} {value}\n"
            for name, kind, help_text, value in rows
        )

    def _run(self) -> None:
        publish_until_stopped = self._flood if self.options.rate is None else self._pace
        while not self._stopping.is_set():
            if self.options.always or self._subscribers.wait(0.1, QUIET_SECONDS):
                self._began_ns = time.monotonic_ns()
                publish_until_stopped()
                self._published_ns += time.monotonic_ns() - self._began_ns
                self._began_ns = None

    def _should_continue(self) -> bool:
        return not self._stopping.is_set() and (self.options.always or self._subscribers.count > 0)

    def _flood(self) -> None:
        """Publishes as much as the backlog allows, until no subscriber is left."""
        self._backpressure.begin(self._next)
        while self._should_continue():
            size = self._bytes // self._next if self._next else max(self.options.message_bytes, len(HEAD))
            room = self._backpressure.room(size, self._next)
            if not room:
                time.sleep(self._backpressure.pause_seconds)
                continue
            unix_us = time.time_ns() // 1000
            self._send(self._message.texts(range(self._next, self._next + room), unix_us))

    def _pace(self) -> None:
        """Publishes each message when it is due, until no subscriber is left."""
        rate = self.options.rate
        assert rate is not None
        # Due times follow the monotonic clock; messages carry the wall-clock time, which receivers use.
        start_ns, unix_ns = time.monotonic_ns(), time.time_ns()
        nth = 0
        while self._should_continue():
            # Multiply first, because a rounded interval would drift.
            after_ns = int(nth * NS_PER_SECOND / rate)
            wait_ns = start_ns + after_ns - time.monotonic_ns()
            if wait_ns > 0:
                # With a low rate, `stop()` must interrupt the wait.
                if self._stopping.wait(wait_ns / NS_PER_SECOND):
                    return
                continue
            self._latest_ns = max(self._latest_ns, -wait_ns)
            self._late += -wait_ns > LATE_NS
            self._send(self._message.texts(range(self._next, self._next + 1), (unix_ns + after_ns) // 1000))
            nth += 1

    def _send(self, texts: list[str]) -> None:
        self._publish(texts)
        self._bytes += sum(map(len, texts))
        self._next += len(texts)


def add_arguments(parser: argparse.ArgumentParser, most_per_call: int = BURST_MESSAGES) -> None:
    """Adds the publisher's flags, whose defaults come from the environment.

    `most_per_call` is the number of messages that the server takes in one call, at most those of a burst.
    """
    environment = os.environ
    parser.add_argument(
        "--rate",
        type=positive,
        default=environment.get("RATE") or None,
        help="messages per second, each due at a fixed time (open loop); without it, a flood",
    )
    parser.add_argument(
        "--message-size",
        type=int,
        default=int(environment.get("MESSAGE_SIZE") or 0),
        help="bytes that shorter messages are padded to (they have 94 to 110; less than 9 more can't be padded)",
    )
    parser.add_argument(
        "--backlog-bytes",
        type=int,
        default=int(environment.get("BACKLOG_BYTES") or DEFAULT_BACKLOG_BYTES),
        help="a flood waits while this many bytes are not written to all subscribers; each message counts once",
    )
    parser.add_argument(
        "--publications-per-call",
        type=partial(positive_up_to, most=most_per_call),
        default=environment.get("PUBLICATIONS_PER_CALL") or most_per_call,
        help=f"most messages that a flood hands to the server in one call, 1 to {most_per_call} (default)",
    )
    parser.add_argument(
        "--publish-always",
        action="store_true",
        default=environment.get("PUBLISH_ALWAYS", "") not in ("", "0"),
        help="publish also when there is no subscriber, as the published benchmarks did",
    )


def options_of(parsed: argparse.Namespace) -> Options:
    """The publisher's options from a parsed command line."""
    per_call = 1 if parsed.rate else parsed.publications_per_call
    return Options(parsed.rate, parsed.message_size, parsed.backlog_bytes, per_call, parsed.publish_always)


def positive_up_to(text: str, most: int) -> int:
    """Parses a number of messages per call from the command line."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"{text} is not a number of messages per call: give 1 to {most}")
    return number


def positive(text: str) -> float:
    """Parses a positive rate per second from the command line."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a rate: give a number per second, more than 0")
    return number
