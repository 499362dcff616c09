"""zlib and MessagePack, in both directions against Python's zlib, json and msgpack."""

import datetime
import enum
import json
import math
import random
import threading
import uuid
import zlib
from collections import OrderedDict, namedtuple
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from wse_server import RustCompressionManager, rust_compress, rust_decompress, rust_should_compress

LIMIT = 10 * 1024 * 1024


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    THREE = 3


Point = namedtuple("Point", "x y")


def text(size: int) -> bytes:
    return json.dumps([{"n": number, "t": "trade"} for number in range(size)]).encode()


@pytest.mark.parametrize("level", range(1, 10))
def test_both_libraries_read_each_others_streams(level: int) -> None:
    for data in (b"", b"x", text(50), text(5000), random.randbytes(70_000)):
        assert zlib.decompress(rust_compress(data, level)) == data
        assert rust_decompress(zlib.compress(data, level)) == data


@pytest.mark.parametrize(("level", "factor"), [(1, 2.0), (6, 1.1), (9, 1.1)])
def test_streams_are_about_as_small_as_zlibs_but_for_the_fastest_level(level: int, factor: float) -> None:
    assert len(rust_compress(text(2000), level)) < factor * len(zlib.compress(text(2000), level))


@pytest.mark.parametrize("level", [-1, 0, 10, 2**40])
def test_levels_from_1_to_9_are_accepted(level: int) -> None:
    for call in (
        lambda: rust_compress(b"", level),
        lambda: RustCompressionManager(1, level),
        lambda: RustCompressionManager().compress(b"", level),
    ):
        with pytest.raises(ValueError, match=f"compression level is {level}: give 1"):
            call()


def test_a_stream_inflates_to_ten_mebibytes_and_no_further() -> None:
    assert len(rust_decompress(zlib.compress(bytes(LIMIT)))) == LIMIT
    with pytest.raises(ValueError, match="inflate to more than 10485760"):
        rust_decompress(zlib.compress(bytes(LIMIT + 1)))


def test_anything_but_one_compressed_stream_is_refused() -> None:
    stream = zlib.compress(text(50))
    for bad in (b"", b"xx", stream[:-1], stream + b"x", stream[2:], b"\x1f\x8b" + stream):
        with pytest.raises(ValueError, match=f"the {len(bad)} bytes are not a complete zlib stream"):
            rust_decompress(bad)
    with pytest.raises(TypeError):
        rust_compress("text", 6)  # type: ignore[arg-type]


def test_only_more_than_the_threshold_is_worth_compressing() -> None:
    manager = RustCompressionManager(10)
    for size in (9, 10, 11):
        assert rust_should_compress(bytes(size), 10) == manager.should_compress(bytes(size)) == (size > 10)
    assert not RustCompressionManager().should_compress(bytes(1024))
    with pytest.raises(ValueError, match="threshold is -1"):
        rust_should_compress(b"", -1)


def test_a_manager_counts_its_operations() -> None:
    manager = RustCompressionManager(compression_level=9)
    streams = [manager.compress(text(50)), manager.compress(text(50), 1)]
    assert [zlib.decompress(stream) for stream in streams] == [text(50)] * 2
    assert manager.decompress(streams[0]) == text(50)
    with pytest.raises(ValueError, match="not a complete zlib stream"):
        manager.decompress(b"bad")
    saved = 2 * len(text(50)) - sum(map(len, streams))
    assert manager.get_stats() == {
        "total_compressed": 2,
        "total_decompressed": 1,
        "compression_failures": 0,
        "decompression_failures": 1,
        "total_bytes_saved": saved,
        "compression_success_rate": 1.0,
        "decompression_success_rate": 0.5,
        "average_bytes_saved": saved / 2,
    }
    manager.reset_stats()
    assert set(manager.get_stats().values()) == {0}


def test_threads_share_a_manager() -> None:
    manager = RustCompressionManager()
    data = text(20_000)

    def work() -> None:
        for _ in range(5):
            assert manager.decompress(manager.compress(data)) == data

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = manager.get_stats()
    assert (stats["total_compressed"], stats["total_decompressed"]) == (20, 20)


def anything(numbers: random.Random, depth: int = 4) -> Any:
    """A random value of types that both MessagePack libraries support."""
    kind = numbers.randrange(9 if depth else 7)
    size = numbers.choice([0, 1, 15, 16, 31, 32, 255, 256, 70_000] if depth == 4 else [0, 1, 3, 20])
    if kind < 2:
        return numbers.choice([-1, 1]) * numbers.getrandbits(numbers.randrange(1, 63))
    values: list[Any] = [None, numbers.random() < 0.5, numbers.uniform(-1e9, 1e9), "é" * size, numbers.randbytes(size)]
    if kind < 7:
        return values[kind - 2]
    if kind == 7:
        return [anything(numbers, depth - 1) for _ in range(size % 40)]
    return {f"k{number}": anything(numbers, depth - 1) for number in range(size % 40)}


def test_messagepack_is_that_of_an_independent_library() -> None:
    seed = random.randrange(2**32)
    numbers, manager = random.Random(seed), RustCompressionManager()
    for _ in range(300):
        value = {"value": anything(numbers), "big": 2**64 - 1, "small": -(2**63)}
        assert manager.pack_msgpack(value) == msgpack.packb(value), f"seed {seed}"
        assert manager.unpack_msgpack(msgpack.packb(value)) == value, f"seed {seed}"


def test_values_without_messagepack_type_become_text_or_a_plain_value() -> None:
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, 678)
    event = {
        "time": now,
        "day": now.date(),
        "id": uuid.UUID(int=3),
        "colour": Colour.RED,
        "number": Number.THREE,
        "tuple": (1, 2),
        "point": Point(1, 2),
        "set": {1},
        "bytes": bytearray(b"xy"),
        "other": 1j,
        "class": Colour,
        "ordered": OrderedDict(a=1),
        5: {None: True},
    }
    assert RustCompressionManager().unpack_msgpack(RustCompressionManager().pack_msgpack(event)) == {
        "time": "2026-01-02T03:04:05.000678",
        "day": "2026-01-02",
        "id": str(uuid.UUID(int=3)),
        "colour": "red",
        "number": 3,
        "tuple": [1, 2],
        "point": [1, 2],
        "set": [1],
        "bytes": b"xy",
        "other": "1j",
        "class": "<enum 'Colour'>",
        "ordered": {"a": 1},
        5: {None: True},
    }


def test_a_value_that_cannot_be_packed_is_an_error_with_the_reason() -> None:
    manager = RustCompressionManager()
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    for use_msgpack in (True, False):
        with pytest.raises(ValueError, match="beyond 64 bits"):
            manager.pack_event({"n": 2**64}, use_msgpack)
        with pytest.raises(ValueError, match="nested more than 64 deep"):
            manager.pack_event(loop, use_msgpack)
        with pytest.raises(UnicodeEncodeError):
            manager.pack_event({"text": "\ud800"}, use_msgpack)
        with pytest.raises(ZeroDivisionError):
            manager.pack_event({"deep": [Raising()]}, use_msgpack)
    with pytest.raises(TypeError):
        manager.pack_msgpack([1])  # type: ignore[arg-type]


class Raising:
    """Raises when it is converted to text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


class Shrinking:
    """Empties the dict that contains it when it is converted to text."""

    def __init__(self, owner: dict[str, Any]) -> None:
        self.owner = owner

    def __str__(self) -> str:
        self.owner.clear()
        return "shrunk"


@pytest.mark.parametrize("use_msgpack", [True, False])
def test_a_dict_that_changes_while_it_is_packed_is_packed_unchanged(use_msgpack: bool) -> None:
    event: dict[str, Any] = {"b": 1}
    event |= {"a": Shrinking(event), "c": 2}
    packed = RustCompressionManager().pack_event(event, use_msgpack)
    assert RustCompressionManager().unpack_event(packed, use_msgpack) == {"b": 1, "a": "shrunk", "c": 2}


@pytest.mark.parametrize(
    "bad", [b"", b"\xc1", b"\x01\x01", b"\x92\x01", b"\xdd\xff\xff\xff\xff", msgpack.packb({"a": 1})[:-1]]
)
def test_anything_but_one_packed_value_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=f"the {len(bad)} bytes are not exactly one MessagePack value"):
        RustCompressionManager().unpack_msgpack(bad)


def test_messagepack_nests_64_deep() -> None:
    manager = RustCompressionManager()
    assert manager.unpack_msgpack(b"\x91" * 64 + b"\x01")
    with pytest.raises(ValueError, match="at most 64 deep"):
        manager.unpack_msgpack(b"\x91" * 65 + b"\x01")
    with pytest.raises(ValueError, match="has no equivalent in Python"):
        manager.unpack_msgpack(b"\x81\x90\x01")


def test_names_are_unchanged() -> None:
    event = {"type": "trade", "payload": {"t": 1}}
    manager = RustCompressionManager()
    assert manager.unpack_msgpack(manager.pack_msgpack(event)) == event
    assert manager.unpack_event(manager.pack_event(event, False), False) == event


def test_json_is_that_of_the_standard_library() -> None:
    manager = RustCompressionManager()
    event = {"a": 1, "é": ["\n\u2028", 2.5, None, True, -(2**63), 2**64 - 1], "n": {"x": {}}, 5: 0, None: 1, True: 2}
    packed = manager.pack_event(event, use_msgpack=False)
    assert packed == json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
    assert manager.unpack_event(packed, is_msgpack=False) == json.loads(packed)


def test_json_has_no_bytes_and_only_numbers() -> None:
    manager = RustCompressionManager()
    assert manager.pack_event({"b": b"x\xff", "n": math.nan, "i": math.inf}, False) == b'{"b":"78ff","n":null,"i":null}'


def test_an_event_that_is_not_messagepack_may_be_json() -> None:
    manager = RustCompressionManager()
    assert manager.unpack_event(manager.pack_event({"a": 1})) == {"a": 1}
    assert manager.unpack_event(b'{"a":1}') == {"a": 1}
    assert manager.unpack_event(b"[1]", is_msgpack=False) == [1]
    with pytest.raises(ValueError, match="neither MessagePack nor JSON"):
        manager.unpack_event(b"\xc1")
    with pytest.raises(ValueError, match="3 bytes are not JSON"):
        manager.unpack_event(b"{a}", is_msgpack=False)
