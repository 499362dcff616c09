"""Starting, stopping, sending, signals, and invalid arguments."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from harness import Running, message
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wse_server import RustWSEServer

from bench_server import token


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ping_interval": 60}, "ping_interval"),
        ({"ping_interval": 0}, "ping_interval"),
        ({"jwt_secret": b"short"}, "32"),
        ({"jwt_secret": b"x" * 32, "jwt_previous_secret": b"short"}, "32"),
        ({"inbound_overflow": "panic"}, "'wait', 'drop_oldest', 'drop_newest' or 'disconnect'"),
        ({"max_inbound_per_connection": -1}, "max_inbound_per_connection is -1"),
        ({"inbound_rate_limit_capacity": 0.5, "inbound_rate_limit_refill": 1.0}, "inbound_rate_limit_capacity is 0.5"),
        ({"inbound_rate_limit_capacity": 5.0}, "inbound_rate_limit_refill is 0"),
        ({"delivery": "mail"}, "'queue', 'discard' or 'echo'"),
        ({"max_connections": -1}, "max_connections"),
        ({"max_inbound_queue_size": 0}, "max_inbound_queue_size"),
        ({"max_message_size": 0}, "max_message_size"),
        ({"metrics_port": 65536}, "metrics_port"),
        ({"metrics_host": "nowhere"}, "metrics_host"),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        RustWSEServer("127.0.0.1", 0, **options)


@pytest.mark.parametrize(("host", "port"), [("example.com", 0), ("", 0), ("127.0.0.1", 70_000), ("127.0.0.1", -1)])
def test_an_invalid_address_is_refused(host: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"host|port"):
        RustWSEServer(host, port)


def test_a_port_in_use_is_an_os_error(start: Callable[..., Running]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        running = start(running=False, port=port)
        with pytest.raises(OSError, match=f"127.0.0.1:{port}") as error:
            running.server.start()
        assert error.value.errno is not None
        assert not running.server.is_running()


def test_a_server_reports_its_address(start: Callable[..., Running]) -> None:
    running = start(running=False, metrics_port=0)
    server = running.server
    assert (server.address, server.port, server.metrics_port, server.is_running()) == (None, 0, 0, False)
    server.start()
    assert server.address == ("127.0.0.1", server.port)
    assert server.port > 0
    assert server.metrics_port
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/healthz") as response:
        assert response.status == 200


def test_starting_twice_is_an_error_and_stopping_twice_is_not(running: Running) -> None:
    with pytest.raises(RuntimeError, match="running"):
        running.server.start()
    running.server.stop()
    running.server.stop()
    assert not running.server.is_running()
    running.server.start()
    with running.connect() as connection:
        assert message(connection)["t"] == "server_ready"


def test_nothing_can_be_drained_before_the_start(start: Callable[..., Running]) -> None:
    server = start(running=False).server
    for call in (server.drain_inbound, server.drain_batch, server.health_snapshot, server.prometheus_metrics):
        with pytest.raises(RuntimeError, match="never started"):
            call()
    assert (server.get_connection_count(), server.get_connections(), server.send("x", "y")) == (0, [], False)


def test_a_stop_closes_clients_with_1001_and_retains_received_messages(running: Running) -> None:
    connection = running.connect()
    message(connection)
    connection.send('{"t":"x"}')
    running.wait(lambda: running.server.inbound_queue_depth() == 2)
    running.server.stop()
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
    assert [kind for kind, _, _ in running.drain(3)] == ["auth_connect", "msg", "disconnect"]


def test_messages_go_to_one_or_to_all(running: Running) -> None:
    server = running.server
    connections = [running.connect() for _ in range(3)]
    ids = [message(connection)["p"]["details"]["connection_id"] for connection in connections]
    assert sorted(server.get_connections()) == sorted(ids)
    assert server.get_connection_count() == 3
    assert server.send(ids[0], "only you")
    assert server.send_bytes(ids[0], b"abc")
    server.broadcast_all('{"t":"fanout_tick","p":{"seq":1}}')
    server.broadcast_all_bytes(b"raw")
    assert [connections[0].recv(10) for _ in range(2)] == ["only you", b"abc"]
    for connection in connections:
        assert [connection.recv(10) for _ in range(2)] == ['{"c":"U","t":"fanout_tick","p":{"seq":1}}', b"raw"]
    assert not server.send("nobody", "x")
    assert not server.send_bytes("nobody", b"x")
    assert not server.disconnect("nobody")
    assert server.disconnect(ids[1])
    running.wait(lambda: server.get_connection_count() == 2)


def test_the_snapshot_and_the_metrics_count(running: Running) -> None:
    with running.connect() as connection:
        message(connection)
        snapshot = running.server.health_snapshot()
        assert snapshot["connections"] == 1
        assert {"inbound_queue_depth", "inbound_dropped", "uptime_secs"} <= snapshot.keys()
        # A shard publishes its counters at the end of a round, which may be after the client's first message.
        running.wait(lambda: "wse_connections 1" in running.server.prometheus_metrics().splitlines())


def test_the_applications_books_are_in_stats(start: Callable[..., Running]) -> None:
    running = start(metrics_port=0)
    with running.connect() as connection:
        connection_id = message(connection)["p"]["details"]["connection_id"]
        running.server.set_application_stats(lambda: (3, 2**64 - 1, 1), lambda: {connection_id: (3, 5, 1)})
        total = fetch(running, "/stats")["application"]
        (book,) = fetch(running, "/stats/connections")["connections"]
    assert total == {"delivered": 3, "sequence_sum": 2**64 - 1, "unnumbered": 1}
    assert (book["id"], book["application"]) == (connection_id, {"delivered": 3, "sequence_sum": 5, "unnumbered": 1})


def test_books_that_fail_are_left_out_and_reported(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    running = start(metrics_port=0)
    running.server.set_application_stats(lambda: (1, 2, -3), None)
    assert fetch(running, "/stats")["application"] is None
    assert [report.exc_type for report in reported] == [OverflowError]


def fetch(running: Running, path: str) -> dict[str, Any]:
    """Gets a JSON page of the metrics port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{running.server.metrics_port}{path}") as response:
        page: dict[str, Any] = json.load(response)
        return page


def test_a_waiting_drain_wakes_for_a_signal(running: Running) -> None:
    # Tests that run in the background may inherit an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            running.server.drain_batch(10, 20_000)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 10


def test_other_threads_run_while_a_drain_waits(running: Running) -> None:
    beats = 0
    done = threading.Event()

    def beat() -> None:
        nonlocal beats
        while not done.is_set():
            beats += 1

    thread = threading.Thread(target=beat)
    thread.start()
    before = beats
    running.server.drain_batch(1, 200)
    done.set()
    thread.join()
    assert beats - before > 1000


@pytest.mark.parametrize("mode", ["server.enable_drain_mode()", "server.set_callbacks(print, print, print)"])
def test_an_interpreter_can_exit_with_a_server_running(mode: str) -> None:
    code = f"import wse_server; server = wse_server.RustWSEServer('127.0.0.1', 0); {mode}; server.start()"
    exited = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], timeout=20, capture_output=True, text=True, check=False
    )
    assert (exited.returncode, exited.stderr) == (0, "")


def test_a_draining_server_closes_its_clients_and_admits_none(start: Callable[..., Running]) -> None:
    running = start(metrics_port=0)
    first, second = running.connect(), running.connect()
    for connection in (first, second):
        assert message(connection)["t"] == "server_ready"
    running.server.broadcast_all('{"c":"U","t":"last"}')
    running.server.drain(4301, "moving on", 5)
    for connection in (first, second):
        assert connection.recv(10) == '{"c":"U","t":"last"}'
        with pytest.raises(ConnectionClosed):
            connection.recv(10)
        assert (connection.close_code, connection.close_reason) == (4301, "moving on")
    running.wait(lambda: running.server.get_connection_count() == 0)
    with pytest.raises(InvalidStatus, match="503"):
        running.connect()
    assert running.server.is_running()
    # A shard publishes its counters at the end of a round, after the connection is off its list.
    lines = {
        'service_connections_closed_total{reason="drain"} 2',
        'service_connections_rejected_total{reason="draining"} 1',
    }
    running.wait(lambda: lines <= set(running.server.prometheus_metrics().splitlines()))


def test_a_client_that_ignores_the_close_frame_is_disconnected_at_the_timeout(running: Running) -> None:
    stubborn = socket.create_connection(("127.0.0.1", running.server.port))
    bearer = token(int(time.time()))
    stubborn.sendall(
        b"GET /wse HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: access_token=" + bearer.encode() + b"\r\n\r\n"
    )
    running.wait(lambda: running.server.get_connection_count() == 1)
    running.server.drain(timeout=1)
    # The client neither reads nor answers.
    running.wait(lambda: running.server.get_connection_count() == 0)
    stubborn.close()


def test_a_code_or_reason_that_no_close_frame_can_carry_is_refused(running: Running) -> None:
    connection = running.connect()
    assert message(connection)["t"] == "server_ready"
    for code, reason in ((1005, ""), (70_000, ""), (4300, "x" * 124)):
        with pytest.raises(ValueError, match="close"):
            running.server.drain(code, reason)
    running.server.send_bytes(running.server.get_connections()[0], b"still here")
    assert connection.recv(10) == b"still here"
