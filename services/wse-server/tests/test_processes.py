"""Several servers on one port, presented as one service."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from harness import wait_until
from service import PROGRAM, Service
from websockets.exceptions import ConnectionClosed

from bench_processes import add, add_metrics, combine, paths_of

CLIENTS = 40
MESSAGES = 100


@pytest.fixture
def service() -> Iterator[Service]:
    """A service of two processes."""
    service = Service("--processes", "2")
    yield service
    service.kill()


def test_the_books_of_all_processes_are_summed_and_balance(service: Service) -> None:
    assert len(service.children()) == 2
    with ExitStack() as stack:
        clients = [stack.enter_context(service.connect()) for _ in range(CLIENTS)]
        for client in clients:
            for number in range(MESSAGES):
                client.send(f'{{"p":{{"seq":{number}}},"t":"trade"}}')
        delivered = CLIENTS * MESSAGES
        wait_until(lambda: service.get("/stats")["application"]["delivered"] == delivered)
        stats = service.get("/stats")
        assert stats["connections"]["accepted"] == stats["connections"]["open"] == CLIENTS
    messages = stats["messages"]
    assert messages["received"] == messages["delivered"] == delivered
    assert stats["application"]["sequence_sum"] == CLIENTS * sum(range(MESSAGES))
    assert f"\nservice_messages_received_total {delivered}\n" in service.get("/metrics")
    wait_until(lambda: service.get("/stats")["connections"]["open"] == 0)
    wait_until(lambda: service.get("/stats")["messages"]["queued"] == 0)
    page = service.get("/stats/connections?since=")
    books = page["connections"]
    assert len({book["id"] for book in books}) == CLIENTS
    assert {(book["received"], book["application"]["delivered"]) for book in books} == {(MESSAGES, MESSAGES)}
    assert len(service.get("/stats/connections")["connections"]) == CLIENTS, "reading takes nothing away"
    cursor = page["cursor"]
    assert service.get(f"/stats/connections?since={cursor}") == {"connections": [], "cursor": cursor}


def test_the_kernel_spreads_clients_over_the_processes(service: Service) -> None:
    def sockets(pid: int) -> int:
        return sum("socket:" in os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208, PTH115

    before = [sockets(pid) for pid in service.children()]
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(service.connect())
        more = [sockets(pid) - count for pid, count in zip(service.children(), before, strict=True)]
    # The kernel distributes by a hash: one of two gets none of forty in fewer than one of a billion runs.
    assert sum(more) == CLIENTS
    assert min(more) > 0


def test_sigterm_closes_the_clients_of_every_process(service: Service) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(service.connect()) for _ in range(CLIENTS)]
        children = service.children()
        assert service.stop() == 0
        for client in clients:
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
    assert not any(os.path.exists(f"/proc/{pid}") for pid in children)  # noqa: PTH110


def test_the_service_stops_when_one_of_its_processes_exits(service: Service) -> None:
    first, second = service.children()
    os.kill(first, signal.SIGKILL)
    assert service.process.wait(10) == 1
    wait_until(lambda: not os.path.exists(f"/proc/{second}"))  # noqa: PTH110


def test_no_process_outlives_the_service(service: Service) -> None:
    children = service.children()
    service.process.kill()
    service.process.wait(10)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))  # noqa: PTH110


def test_a_port_in_use_is_refused(service: Service) -> None:
    port = service.ready["address"].rsplit(":", 1)[1]
    command = [sys.executable, str(PROGRAM), "--port", port, "--metrics-port", "0", "--processes", "2"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert refused.returncode == 1
    assert "Address already in use" in refused.stderr


def test_metrics_with_a_hanging_process_are_an_error_and_not_a_partial_sum(service: Service) -> None:
    for pid in service.children():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises((urllib.error.URLError, ConnectionError, socket.timeout)):
        urllib.request.urlopen(f"http://{service.ready['metrics_address']}/stats")


def test_readings_are_added_by_name() -> None:
    one = {"service": "x", "uptime_seconds": 1.5, "closed": {"eof": 1}, "application": None}
    two = {"service": "x", "uptime_seconds": 2.5, "closed": {"idle": 2}, "application": {"sequence_sum": 2**64 - 1}}
    assert add("", [one, two]) == {
        "service": "x",
        "uptime_seconds": 2.5,
        "closed": {"eof": 1, "idle": 2},
        "application": {"sequence_sum": 2**64 - 1},
    }
    assert add("sequence_sum", [2**64 - 1, 2]) == 1


def test_metrics_are_added_by_series_with_their_comments() -> None:
    text = '# HELP a b\n# TYPE a counter\na{reason="x"} 2\nwse_uptime_seconds 1.5\n'
    assert add_metrics([text, text.replace("1.5", "3.5")]) == (
        '# HELP a b\n# TYPE a counter\na{reason="x"} 4\nwse_uptime_seconds 3.5\n'
    )


def test_books_are_read_one_after_the_other() -> None:
    bodies = ['{"connections":[]}', '{"connections":[{"id":"a"}]}', '{"connections":[{"id":"b"},{"id":"c"}]}']
    assert combine("/stats/connections", bodies) == '{"connections":[{"id":"a"},{"id":"b"},{"id":"c"}]}'


def test_a_cursor_is_made_of_the_processes_cursors() -> None:
    assert paths_of("/stats", 2) == ["/stats", "/stats"]
    assert paths_of("/stats/connections", 2) == ["/stats/connections"] * 2
    assert paths_of("/stats/connections?since=", 2) == ["/stats/connections?since="] * 2
    bodies = ['{"connections":[{"id":"a"}],"cursor":"1a.2"}', '{"connections":[],"cursor":"1b.0"}']
    combined = json.loads(combine("/stats/connections?since=", bodies))
    assert combined == {"connections": [{"id": "a"}], "cursor": "1a.2-1b.0"}
    path = f"/stats/connections?since={combined['cursor']}"
    assert paths_of(path, 2) == ["/stats/connections?since=1a.2", "/stats/connections?since=1b.0"]
    assert paths_of(path, 3) == [path] * 3
