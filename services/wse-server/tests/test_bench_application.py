"""The witness: what it counts, and that the position of a number can't mislead it."""

import itertools
import time
from array import array
from random import Random
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

import bench_application
from bench_application import UINT64, Books, count_events, count_packed

TRADE = '{"p":{"price":5234.75,"seq":%d,"side":"buy"},"t":"trade_update"}'


def packed(key: int, messages: list[bytes]) -> tuple[int, None, bytes, bytes]:
    """A run of messages in the format of `MessageBatch.packed()`."""
    return key, None, b"".join(messages), array("I", itertools.accumulate(map(len, messages))).tobytes()


def trades(*numbers: int) -> list[bytes]:
    return [(TRADE % number).encode() for number in numbers]


def counted(data: bytes) -> tuple[int, int, int]:
    books = Books()
    books.open(1, "one")
    count_packed([packed(1, [data])], books)
    return books.totals()


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b'{"p":{"seq":7,"x":1},"t":"a"}', 7),
        (b'{"p":{"seq":7},"t":"a"}', 7),
        (b'{"t":"a","p":{"seq":7}}', 7),
        (b'{"seq":7}', 7),
        (b'"seq":7', 7),
        (b'{"p":{"seq": 7, "x":1}}', 7),
        (b'{"p":{"seq":0,"x":1}}', 0),
        (b'{"p":{"seq":18446744073709551615,"x":1}}', UINT64),
        (msgpack.packb({"t": "a", "p": {"seq": 70_000}}), 70_000),
    ],
)
def test_a_number_is_found_at_any_position(data: bytes, number: int) -> None:
    assert counted(data) == (1, number, 0)


@pytest.mark.parametrize("data", [b'{"t":"a"}', b"", b'{"seq":"x"}', b'{"seq":', b"\x00\xff", b'{"n":1,"m":2}'])
def test_a_message_without_a_number_is_counted_as_such(data: bytes) -> None:
    assert counted(data) == (1, 0, 1)


@pytest.mark.parametrize("connections", [1, 2])
def test_a_number_is_not_read_at_the_last_position_without_a_check(connections: int) -> None:
    messages = [
        (b'{"p":{"seq":123},"t":"a"}', 123),
        (b'{"p":{"seq":456},"t":"a"}', 456),
        (b'{"p":{"seq":45},"t":"abc"}', 45),
        (b'{"p":{"seq":4567},"t":"a"}', 4567),
        (b'{"p":{"seq":456,"x":"}"}}', 456),
        (b'{"p":{"seq":1,"y":2}}', 1),
        (b'{"p":{"seq":789}', 789),
        (b'{"p":{"seq":78', 78),
        (b'{"p":{"seq":7', 7),
        (b'{"p":{}}', 0),
        (msgpack.packb({"t": "a", "p": {"seq": 70_000}}), 70_000),
        (msgpack.packb({"t": "a", "p": {"seq": 70_001}}), 70_001),
        (msgpack.packb({"t": "ab", "p": {"seq": 70_002}}), 70_002),
        (b'{"seq":5}', 5),
        (b"", 0),
    ]
    for count in range(1, len(messages) + 1):
        books = Books()
        runs = [
            packed(key, [data for number, (data, _) in enumerate(messages[:count]) if number % connections == key])
            for key in range(min(connections, count))
        ]
        count_packed(runs * 2, books)
        assert books.totals()[:2] == (2 * count, 2 * sum(number for _, number in messages[:count]))


@pytest.mark.parametrize("first", [0, 1, 95, 995, 9_990, 99_900, 100_000_000, 100_009_999, 999_999_990, 10**19 - 5])
@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 1000, 1025, 10_001])
def test_successive_numbers_are_summed_across_every_carry(first: int, count: int) -> None:
    books = Books()
    numbers = range(first, first + count)
    count_packed([packed(1, trades(*numbers))], books)
    assert books.totals() == (count, sum(numbers) & UINT64, 0)


def test_one_number_out_of_order_is_summed_too() -> None:
    random = Random(5)
    for _ in range(500):
        first, count = random.randrange(10 ** random.randrange(1, 11)), random.randrange(2, 40)
        numbers = list(range(first, first + count))
        numbers[random.randrange(count)] = random.randrange(10 ** random.randrange(1, 11))
        books = Books()
        count_packed([packed(1, trades(*numbers))] * 2, books)
        assert books.totals() == (2 * count, 2 * sum(numbers), 0), numbers


@pytest.mark.parametrize("swapped", [(0, 1), (3, 9), (62, 63)])
def test_swapped_messages_are_summed_too(swapped: tuple[int, int]) -> None:
    one, other = swapped
    messages = trades(*range(10_000_000, 10_000_064))
    messages[one], messages[other] = messages[other], messages[one]
    books = Books()
    count_packed([packed(1, messages)], books)
    assert books.totals() == (64, sum(range(10_000_000, 10_000_064)), 0)


def test_varying_sizes_do_not_grow_the_cache_of_offsets() -> None:
    books = Books()
    before = len(bench_application.EVEN_OFFSETS)
    for number in range(200):
        count_packed([packed(1, [b'{"seq":1}', b'{"seq":1}' + b" " * (2 * number + 2)])], books)
    assert len(bench_application.EVEN_OFFSETS) == before
    assert books.totals() == (400, 400, 0)


def test_books_count_per_connection_and_in_total() -> None:
    books = Books()
    for key in (1, 2):
        books.open(key, f"id{key}")
    count_packed([packed(1, trades(*range(10)))], books)
    count_packed([packed(key, trades(number)) for number in range(3) for key in (2, 1)], books)
    assert books.connections() == {"id1": (13, 48, 0), "id2": (3, 3, 0)}
    assert books.totals() == (16, 51, 0)


def test_sums_are_modulo_two_to_the_64() -> None:
    books = Books()
    books.open(1, "one")
    count_packed([packed(1, [b'{"seq":18446744073709551615,"x":0}'] * 3)], books)
    assert books.totals() == (3, (3 * UINT64) & UINT64, 0)
    assert books.connections()["one"] == books.totals()


def test_reading_takes_nothing_away_and_only_the_newest_closed_connections_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_application, "MOST_CLOSED", 1)
    books = Books()
    books.open(1, "one")
    books.add(1, 5, 5, 0)
    books.close(1)
    for _ in range(2):
        assert books.connections() == {"one": (5, 5, 0)}
    books.open(2, "two")
    books.close(2)
    assert books.connections() == {"two": (0, 0, 0)}
    books.open(3, "three")
    assert books.connections() == {"three": (0, 0, 0), "two": (0, 0, 0)}, "in the row of the first"
    assert books.totals() == (5, 5, 0)


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ({"t": "a", "p": {"seq": 7}}, 7),
        ({"p": {"seq": 7}}, 7),
        ({"t": "a", "seq": 7}, 7),
        ({"t": "a", "p": 5, "seq": 7}, 7),
        ({"t": "a", "p": {"seq": 7.5}}, None),
        ({"t": "a", "p": {"seq": True}}, None),
        ({"t": "a", "p": {"seq": "7"}}, None),
        ({"t": "a"}, None),
        (77, None),
        ([1], None),
        ("x", None),
    ],
)
def test_a_decoded_message_is_read_by_its_keys(data: Any, number: int | None) -> None:
    books = Books()
    count_events([("auth_connect", "one", "user"), ("msg", "one", data)], books)
    assert books.totals() == (1, number or 0, int(number is None))


def test_events_open_and_close_books_around_their_messages() -> None:
    books = Books()
    message = ("msg", "one", {"t": "a", "p": {"seq": 2}})
    count_events([("auth_connect", "one", "user"), message, message, ("disconnect", "one", None)], books)
    assert books.connections() == {"one": (2, 4, 0)}
    assert books.totals() == (2, 4, 0)


def test_a_connection_whose_connect_event_was_lost_has_books_too() -> None:
    books = Books()
    count_events(
        [("msg", "one", {"t": "a", "p": {"seq": 2}}), ("raw", "one", '{"seq":3'), ("bin", "one", b"\x00")], books
    )
    assert books.connections() == {"one": (3, 5, 1)}
    count_events([("disconnect", "never seen", None)], books)


def test_the_loop_lingers_after_a_few_messages_but_not_after_many_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    rounds = [0, bench_application.FEW_MESSAGES, 1, 0]
    lingered = []

    def deliver() -> int:
        lingered.append(len(slept))
        return rounds.pop(0)

    bench_application.deliver_until(lambda: not rounds, deliver)
    assert lingered == [0, 0, 0, 1]
    assert slept == [bench_application.LINGER_SECONDS]


def test_columns_hold_machine_words() -> None:
    books = Books()
    for key in range(1000):
        books.open(key, str(key))
    columns = [column for column in vars(books).values() if isinstance(column, array)]
    assert [(len(column), column.itemsize) for column in columns] == [(1000, 8)] * 3


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b'{"p":{"seq":100000007},"t":"a"}', 100000007),
        (b'{"p":{"seq": 12},"t":"b"}', 12),
        (b"M:\x82\xa1p\x81\xa3seq\xce\x00\x00\x01\x02\xa1t\xa1c", 258),
        (b'{"p":{},"t":"d"}', None),
        (b'{"p":{"seq":"x"},"t":"e"}', None),
    ],
)
def test_a_message_alone_in_its_run_is_read_as_among_others(data: bytes, number: int | None) -> None:
    alone, among = Books(), Books()
    count_packed([(1, "t", data, array("I", [len(data)]).tobytes())] * 2, alone)
    count_packed([(1, "t", data * 2, array("I", [len(data), 2 * len(data)]).tobytes())], among)
    assert alone.totals() == among.totals() == (2, 2 * (number or 0), 0 if number is not None else 2)
