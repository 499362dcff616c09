"""The measured operations of each component, with the same inputs and results for Rust and Python.

A task has two sides. A side runs a number of operations at a time; state is restored between batches, outside the
measured time. `check` compares the results of both sides and raises where they differ.
"""

from __future__ import annotations

import hmac
import json
import time
import uuid
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import component_baselines as plain
import jwt
import msgpack  # type: ignore[import-untyped]
import msgpack.fallback  # type: ignore[import-untyped]
import wse_server as ours
from component_summary import Component

SECRET = b"bench-secret-key-for-testing-only"
EVENT = {
    "t": "trade",
    "p": {"symbol": "ESZ6", "price": 5021.25, "size": 12, "side": "buy", "venue": "XCME", "flags": ["open", "block"]},
    "id": "01a20674-d8b0-76a3-b4e8-02403fdad3c4",
    "ts": "2026-11-23T03:30:50.672518Z",
    "seq": 4711,
    "v": 1,
}
# Quotes as JSON, from which 1 KiB is taken: typical content of a compressed message.
QUOTES = json.dumps([{"symbol": f"S{number % 37}", "bid": number * 1.25, "ask": number * 1.5} for number in range(40)])
QUOTES_BYTES = QUOTES.encode()[:1024]
APPLICATION_EVENT = {
    "event_type": "TRADE_EXECUTED",
    "payload": EVENT["p"],
    "_metadata": {"correlation_id": "order-4711", "priority": 8, "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"},
}
EVENT_TYPES = {"TRADE_EXECUTED": "trade", "ORDER_PLACED": "order"}
CRITERIA = {
    "t": "trade",
    "p.symbol": {"$in": ["NQZ6", "ESZ6"]},
    "p.price": {"$gte": 5000, "$lt": 5100},
    "p.venue": {"$regex": "X(CME|EUR)"},
    "p.flags": {"$contains": "block"},
}
WINDOW = 10_000
# Twice the window, so that an id has left the window when it is used again.
IDS = [str(uuid.UUID(int=number * 2**64 + 7)) for number in range(2 * WINDOW)]
PRIORITIES = [10, 5, 5, 8, 1, 3, 5, 5]
# No batch fills the queue, so only adding is measured.
QUEUE_SIZE = 100_000


@dataclass(frozen=True)
class Side:
    """One implementation of a component: Rust or plain Python."""

    # Runs the given number of operations.
    run: Callable[[int], None]
    # Restores the state after a batch; not measured.
    restore: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Task:
    """Both implementations of one component, and a check that their results are equal."""

    component: Component
    ours: Side
    plain: Side
    check: Callable[[], None]


def same(name: str, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Raises when the values of a pair differ; `name` is in the message."""
    for number, (left, right) in enumerate(pairs):
        if left != right:
            raise AssertionError(f"{name}: answer {number} differs: Rust gives {left!r}, Python {right!r}")


def repeated(call: Callable[..., object], *arguments: Any) -> Side:
    """A side that repeats one call."""

    def run(count: int) -> None:
        for _ in range(count):
            call(*arguments)

    return Side(run)


def token() -> Task:
    claims = {"sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": int(time.time()) + 3600}
    good = jwt.encode(claims | {"iat": int(time.time())}, SECRET)
    expired = jwt.encode(claims | {"exp": 1}, SECRET)

    def read(text: str) -> dict[str, Any] | None:
        try:
            return jwt.decode(
                text,
                SECRET,
                ["HS256"],
                issuer="wse-bench",
                audience="wse-bench",
                leeway=30,
                options={"require": ["exp"]},
            )
        except jwt.InvalidTokenError:
            return None

    def rust(text: str) -> dict[str, Any] | None:
        return ours.rust_jwt_decode(text, SECRET, "HS256", "wse-bench", "wse-bench")

    def check() -> None:
        same("JWT", ((rust(text), read(text)) for text in (good, expired, good[:-4], "x")))

    return Task(
        Component("JWT decode (HS256)", "PyJWT", 850, 10),
        repeated(ours.rust_jwt_decode, good, SECRET, "HS256", "wse-bench", "wse-bench"),
        repeated(read, good),
        check,
    )


def messagepack(library: Callable[[bytes], Any], baseline: str) -> Task:
    packed: bytes = msgpack.packb(EVENT)
    unpack = ours.RustCompressionManager().unpack_msgpack

    def check() -> None:
        same(
            "MessagePack",
            ((unpack(msgpack.packb(value)), library(msgpack.packb(value))) for value in (EVENT, CRITERIA)),
        )

    return Task(
        Component("Msgpack inbound parse", baseline, 50, 1), repeated(unpack, packed), repeated(library, packed), check
    )


def bucket() -> Task:
    def check() -> None:
        buckets = (ours.RustTokenBucket(5, 0), plain.TokenBucket(5, 0))
        requested_tokens = (2, 2, 2, 1, 1, 0)
        results = [[bucket.acquire(tokens) for tokens in requested_tokens] for bucket in buckets]
        same("bucket", zip(*results, strict=True))

    full = 1e12
    return Task(
        Component("Rate limiter (check)", "a class", 2, 0.05),
        repeated(ours.RustTokenBucket(full, full).acquire, 1.0),
        repeated(plain.TokenBucket(full, full).acquire, 1.0),
        check,
    )


def sequencer() -> Task:
    def side(sequencer: ours.RustSequencer | plain.Sequencer) -> Side:
        ids = cycle(IDS)
        for name in islice(ids, WINDOW):
            sequencer.is_duplicate(name)

        def run(count: int) -> None:
            number, is_duplicate = sequencer.next_seq, sequencer.is_duplicate
            for name in islice(ids, count):
                number()
                is_duplicate(name)

        return Side(run)

    def check() -> None:
        both = (ours.RustSequencer(50), plain.Sequencer(50))
        names = [IDS[number * number % 131] for number in range(500)]
        results = [[(sequencer.next_seq(), sequencer.is_duplicate(name)) for name in names] for sequencer in both]
        same("sequencer", zip(*results, strict=True))

    component = Component("Sequence + dedup", "set and deque", 8, 0.3)
    return Task(component, side(ours.RustSequencer(WINDOW)), side(plain.Sequencer(WINDOW)), check)


def priority() -> Task:
    def side(queue: ours.RustPriorityMessageQueue | plain.PriorityMessageQueue) -> Side:
        priorities = cycle(PRIORITIES)

        def run(count: int) -> None:
            enqueue = queue.enqueue
            for level in islice(priorities, count):
                enqueue(EVENT, level)

        return Side(run, queue.clear)

    def check() -> None:
        both = (ours.RustPriorityMessageQueue(20, 7), plain.PriorityMessageQueue(20, 7))
        taken = [[queue.enqueue(number, number * 7 % 12) for number in range(60)] for queue in both]
        same("queue", zip(*taken, strict=True))
        same("queue", zip(*[[queue.dequeue_batch() for _ in range(5)] for queue in both], strict=True))

    return Task(
        Component("Priority queue (enqueue)", "deques", 5, 0.2),
        side(ours.RustPriorityMessageQueue(QUEUE_SIZE, 10)),
        side(plain.PriorityMessageQueue(QUEUE_SIZE, 10)),
        check,
    )


def signature() -> Task:
    message = json.dumps(EVENT).encode()

    def check() -> None:
        sizes = (0, 1, 64, 1000)
        same(
            "HMAC", ((ours.rust_hmac_sha256(SECRET, bytes(n)), hmac.digest(SECRET, bytes(n), "sha256")) for n in sizes)
        )

    return Task(
        Component("HMAC-SHA256 sign", "hmac.digest", 18, 0.8),
        repeated(ours.rust_hmac_sha256, SECRET, message),
        repeated(hmac.digest, SECRET, message, "sha256"),
        check,
    )


def transformation() -> Task:
    def check() -> None:
        given: list[dict[str, Any]] = [
            APPLICATION_EVENT,
            {"event_type": "user_snapshot", "event_id": "x", "x": (1, b"y")},
            {"type": "ERROR", "timestamp": "2026", "payload": {"n": {"m": [1]}}, "version": 3},
        ]
        # New ids and times differ, so only their kind is compared.
        made = [0, 0]
        for event in given:
            both = ours.rust_transform_event(event, 7, EVENT_TYPES), plain.transform_event(event, 7, EVENT_TYPES)
            for one in both if "event_id" not in event else ():
                made[0] += uuid.UUID(one.pop("id")).version == 7
            for one in both if "timestamp" not in event else ():
                made[1] += len(one.pop("ts")) == len("2026-11-23T03:30:50.672518Z")
            same("transform", [(list(both[0].items()), list(both[1].items()))])
        same("transform", [(made, [4, 4])])

    return Task(
        Component("Event transform", "functions", 45, 3),
        repeated(ours.rust_transform_event, APPLICATION_EVENT, 7, EVENT_TYPES),
        repeated(plain.transform_event, APPLICATION_EVENT, 7, EVENT_TYPES),
        check,
    )


def filtering() -> Task:
    def check() -> None:
        others: list[dict[str, Any]] = [
            CRITERIA,
            {"t": "quote"},
            {"p.price": {"$gt": "5"}},
            {"p.none": {"$ne": 1}},
            {"p.none": None},
            {"$or": [{"t": "quote"}, {"p.size": {"$lte": 12}}]},
            {"$and": [CRITERIA, {"v": {"$exists": False}}]},
        ]
        same("filter", ((ours.rust_match_event(EVENT, one), plain.match_event(EVENT, one)) for one in others))

    return Task(
        Component("Filter match", "functions", 15, 1.2),
        repeated(ours.rust_match_event, EVENT, CRITERIA),
        repeated(plain.match_event, EVENT, CRITERIA),
        check,
    )


def compression() -> Task:
    def check() -> None:
        for data in (QUOTES_BYTES, b"", bytes(5000)):
            streams = ours.rust_compress(data, 6), zlib.compress(data, 6)
            same("zlib", [(zlib.decompress(streams[0]), ours.rust_decompress(streams[1]))])
            if abs(len(streams[0]) - len(streams[1])) > 0.05 * len(streams[1]) + 10:
                raise AssertionError(f"streams of {len(streams[0])} and {len(streams[1])} bytes are no like work")

    return Task(
        Component("Compression (1KB zlib)", "zlib", 12, 1.8),
        repeated(ours.rust_compress, QUOTES_BYTES, 6),
        repeated(zlib.compress, QUOTES_BYTES, 6),
        check,
    )


def tasks() -> list[Task]:
    """All tasks in the order of the published table; MessagePack twice, because its library has a C extension."""
    unpack = msgpack.fallback.Unpacker

    def fallback(data: bytes) -> Any:
        unpacker = unpack()
        unpacker.feed(data)
        return unpacker.unpack()

    return [
        token(),
        messagepack(fallback, "msgpack without its C extension"),
        messagepack(msgpack.unpackb, "msgpack with its C extension"),
        bucket(),
        sequencer(),
        priority(),
        signature(),
        transformation(),
        filtering(),
        compression(),
    ]
