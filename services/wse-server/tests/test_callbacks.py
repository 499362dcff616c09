"""Callback mode: the order of calls, and isolation of errors."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from harness import DEADLINE_SECONDS, Running


class Calls:
    """Records calls; `closed` is set on disconnect."""

    def __init__(self) -> None:
        self.recorded: list[tuple[Any, ...]] = []
        self.closed = threading.Event()

    def connected(self, connection_id: str, detail: str) -> None:
        self.recorded.append(("connected", connection_id, detail))

    def received(self, connection_id: str, data: Any) -> None:
        self.recorded.append(("received", connection_id, data))
        if data == "boom":
            raise RuntimeError("the application's own mistake")

    def disconnected(self, connection_id: str) -> None:
        self.recorded.append(("disconnected", connection_id))
        self.closed.set()


def start_with(start: Callable[..., Running], calls: Calls) -> Running:
    running = start(running=False)
    running.server.set_callbacks(calls.connected, calls.received, calls.disconnected)
    running.server.start()
    return running


def test_callbacks_are_called_in_order_with_decoded_data(start: Callable[..., Running]) -> None:
    calls = Calls()
    running = start_with(start, calls)
    with running.connect("?format=msgpack") as connection:
        connection.send('{"type":"a"}')
        connection.send(msgpack.packb({"t": "b"}))
        connection.send("hello")
        connection.send(b"\xc1")
    assert calls.closed.wait(DEADLINE_SECONDS)
    connection_id = calls.recorded[0][1]
    assert calls.recorded == [
        ("connected", connection_id, "bench-user"),
        ("received", connection_id, {"t": "a"}),
        ("received", connection_id, {"t": "b"}),
        ("received", connection_id, "hello"),
        ("received", connection_id, b"\xc1"),
        ("disconnected", connection_id),
    ]


def test_an_error_in_a_callback_is_reported_and_the_next_message_handled(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    calls = Calls()
    running = start_with(start, calls)
    with running.connect() as connection:
        connection.send("boom")
        connection.send("after")
    assert calls.closed.wait(DEADLINE_SECONDS)
    assert [call[2] for call in calls.recorded if call[0] == "received"] == ["boom", "after"]
    assert [(report.exc_type, report.object) for report in reported] == [(RuntimeError, calls.received)]


def test_a_stop_delivers_what_was_received_first(start: Callable[..., Running]) -> None:
    calls = Calls()
    running = start_with(start, calls)
    connection = running.connect()
    connection.send("hello")
    running.wait(lambda: len(calls.recorded) >= 2)
    running.server.stop()
    assert [call[0] for call in calls.recorded] == ["connected", "received", "disconnected"]


def test_a_callback_may_stop_the_server(start: Callable[..., Running]) -> None:
    running = start(running=False)
    stopped = threading.Event()

    def stop(_connection_id: str, _data: object) -> None:
        running.server.stop()
        stopped.set()

    running.server.set_callbacks(lambda *_: None, stop, lambda *_: None)
    running.server.start()
    running.connect().send("stop")
    assert stopped.wait(DEADLINE_SECONDS)
    assert not running.server.is_running()


def test_callbacks_and_draining_exclude_each_other(start: Callable[..., Running]) -> None:
    running = start(running=False)
    running.server.set_callbacks(print, print, print)
    with pytest.raises(RuntimeError, match="callbacks are set"):
        running.server.enable_drain_mode()
    with pytest.raises(RuntimeError, match="callbacks are set"):
        running.server.drain_inbound()
    with pytest.raises(RuntimeError, match="callbacks are set"):
        running.server.drain_batch()
    drains = start(running=False)
    drains.server.enable_drain_mode()
    with pytest.raises(RuntimeError, match="drain mode is on"):
        drains.server.set_callbacks(print, print, print)
