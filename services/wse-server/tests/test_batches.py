"""`drain_batch()`: views and tuples of memory that is returned to the server."""

import gc
import itertools
import json
import time
from collections.abc import Callable

import msgpack  # type: ignore[import-untyped]
import pytest
from harness import DEADLINE_SECONDS, Running, Sender, message
from wse_server import Message, MessageBatch

TEXT = '{"t":"trade","p":{"seq":7}}'


def drained(running: Running, count: int) -> MessageBatch:
    """Drains a batch when `count` entries are ready."""
    running.wait(lambda: running.server.inbound_queue_depth() >= count)
    return running.server.drain_batch(count)


def test_a_view_shows_everything_about_a_message(running: Running) -> None:
    with running.connect() as connection:
        connection_id = message(connection)["p"]["details"]["connection_id"]
        connection.send(TEXT)
        batch = drained(running, 2)
        opened, view = batch
        assert isinstance(view, Message)
        assert (opened.kind, opened.type, opened.data) == ("auth_connect", None, b"bench-user")
        assert (view.kind, view.type, view.data, len(view)) == ("msg", "trade", TEXT.encode(), len(TEXT))
        assert view.json() == json.loads(TEXT)
        assert view.connection == opened.connection
        assert view.connection_id == connection_id
        assert view.connection_id is opened.connection_id


def test_a_view_gives_its_bytes_without_a_copy_and_read_only(running: Running) -> None:
    with running.connect() as connection:
        connection.send(TEXT)
        batch = drained(running, 2)
        read = memoryview(batch[1])
        del batch
        gc.collect()
        assert read.readonly
        assert read.tobytes() == TEXT.encode()
        assert (read.format, read.shape, read.strides) == ("B", (len(TEXT),), (1,))
        with pytest.raises(TypeError):
            read[0] = 0


def test_indexes_may_be_negative(running: Running) -> None:
    with running.connect() as connection:
        for number in range(3):
            connection.send(f'{{"t":"n{number}"}}')
        batch = drained(running, 4)
    assert len(batch) == 4
    assert [batch[index].type for index in (1, 3, -1, -3)] == ["n0", "n2", "n2", "n0"]
    for index in (4, -5, 10**18):
        with pytest.raises(IndexError):
            batch[index]


def test_tuples_are_the_messages_and_events_the_rest(running: Running) -> None:
    with running.connect() as connection:
        connection.send(TEXT)
        connection.send("hello")
        connection.send(b"\x00")
    batch = drained(running, 5)
    key = batch[0].connection
    assert batch.tuples() == [(key, "trade", TEXT.encode()), (key, None, b"hello"), (key, None, b"\x00")]
    assert batch.runs() == [(key, "trade", [TEXT.encode()]), (key, None, [b"hello", b"\x00"])]
    connection_id = batch[0].connection_id
    assert batch.events() == [
        ("auth_connect", key, connection_id, "bench-user"),
        ("disconnect", key, connection_id, ""),
    ]


def test_runs_hold_every_message_once_and_in_order(running: Running) -> None:
    with running.connect() as first, running.connect() as second:
        for connection in (first, second, first):
            for number in range(5):
                connection.send(f'{{"t":"n{number // 3}","p":{{"n":{number}}}}}')
    batch = drained(running, 15 + 4)
    assert [(key, type_, data) for key, type_, run in batch.runs() for data in run] == batch.tuples()
    for (key, type_, _), (next_key, next_type, _) in itertools.pairwise(batch.runs()):
        assert (key, type_) != (next_key, next_type)
    assert unpacked(batch) == batch.tuples()


def test_packed_messages_are_contiguous_for_every_length(running: Running) -> None:
    sizes = [0, 1, 125, 40_000, 7, 7, 200_000]
    with running.connect() as connection:
        for size in sizes:
            connection.send("x" * size)
            connection.send(b"\xff" * size)
    batch = drained(running, 2 * len(sizes) + 2)
    assert [len(data) for _, _, data in unpacked(batch)] == [size for size in sizes for _ in range(2)]
    assert unpacked(batch) == batch.tuples()


def unpacked(batch: MessageBatch) -> list[tuple[int, str | None, bytes]]:
    """The messages of `packed()`, one by one."""
    return [
        (key, type_, data[start:end])
        for key, type_, data, ends in batch.packed()
        for start, end in itertools.pairwise([0, *memoryview(ends).cast("I")])
    ]


def test_adjacent_messages_share_their_key_and_type(running: Running) -> None:
    with running.connect() as connection:
        for _ in range(10):
            connection.send(TEXT)
        rows = drained(running, 11).tuples()
    assert len({id(row[0]) for row in rows}) == len({id(row[1]) for row in rows}) == 1


def test_json_decodes_messagepack_too_with_large_integers(running: Running) -> None:
    value = {"t": "x", "p": {"n": 2**64 - 1}}
    with running.connect("?format=msgpack") as connection:
        connection.send(msgpack.packb(value))
        connection.send('{"type":"x","payload":{"n":18446744073709551615}}')
        batch = drained(running, 3)
    assert batch[1].json() == batch[2].json() == value
    assert batch[1].type == batch[2].type == "x"


def test_invalid_json_is_a_clear_error(running: Running) -> None:
    with running.connect() as connection:
        connection.send('{"t":"x",}')
        connection.send("hello")
        connection.send(b"\x00")
        batch = drained(running, 4)
    for index, why in ((1, "column"), (2, "kind is raw"), (3, "kind is bin")):
        with pytest.raises(ValueError, match=why):
            batch[index].json()


def test_a_batch_outlives_its_server_but_ids_are_forgotten_with_the_last_batch(running: Running) -> None:
    with running.connect() as connection:
        connection.send(TEXT)
        first = drained(running, 2)
    last = drained(running, 1)
    running.server.stop()
    assert first[1].data == TEXT.encode()
    assert first[1].connection_id == last[0].connection_id
    del last
    with pytest.raises(LookupError):
        _ = first[1].connection_id


def test_an_empty_batch_is_returned_at_the_timeout_and_at_once_after_a_stop(running: Running) -> None:
    started = time.monotonic()
    assert len(running.server.drain_batch(10, 120)) == 0
    assert 0.1 <= time.monotonic() - started < DEADLINE_SECONDS
    running.server.stop()
    assert len(running.server.drain_batch(10, 60_000)) == 0


def test_a_drain_returns_at_most_the_requested_number(running: Running) -> None:
    with running.connect() as connection:
        for number in range(10):
            connection.send(f'{{"t":"n{number}"}}')
        running.wait(lambda: running.server.inbound_queue_depth() == 11)
        sizes = [len(running.server.drain_batch(4)) for _ in range(3)]
    assert sizes == [4, 4, 3]


def test_stored_batches_slow_the_client_down_until_they_are_released(start: Callable[..., Running]) -> None:
    running = start(max_inbound_queue_size=64)
    total = 50_000
    with running.connect() as connection:
        batches = [running.server.drain_batch()]
        # More than the kernel buffers for both sides in any case: 4 MiB to send, 32 MiB to read.
        sender = Sender(connection, total, padding_bytes=1024)
        # Held batches reach the limit; then no more messages arrive although the client has more to send.
        while batch := running.server.drain_batch(4096, 300):
            batches.append(batch)
        assert sender.is_alive()
        assert sum(map(len, batches)) < total
        read = sum(len(batch.tuples()) for batch in batches)
        batches.clear()
        del batch
        while read < total:
            batch = running.server.drain_batch(4096, 1000)
            assert len(batch), f"{read} of {total} arrived"
            read += len(batch.tuples())
            del batch
        sender.join()
    assert running.server.inbound_dropped_count() == 0
