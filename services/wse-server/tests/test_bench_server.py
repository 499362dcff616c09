"""The bench service as a process, against its contract in `services/README.md`."""

import os
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator

import pytest
from harness import wait_until
from service import PROGRAM, Service
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from bench_server import SECRET

MESSAGES = 1000


@pytest.fixture(params=["batch", "dict"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service with each delivery mode that reaches an application."""
    by_flag = request.param == "dict"
    service = Service("--delivery", request.param) if by_flag else Service(DELIVERY=request.param)
    yield service
    service.kill()


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    """Starts services with environment variables; stops them after the test."""
    started: list[Service] = []

    def start(*arguments: str, **environment: str) -> Service:
        started.append(Service(*arguments, **environment))
        return started[-1]

    yield start
    for service in started:
        service.kill()


def test_the_ready_line_has_all_addresses(service: Service) -> None:
    assert service.ready.keys() == {"event", "address", "metrics_address", "pid"}
    assert (service.ready["event"], service.ready["pid"]) == ("ready", service.process.pid)
    assert service.get("/readyz")
    assert "service_messages_received_total 0" in service.get("/metrics")


def test_every_message_is_in_the_books(service: Service) -> None:
    with service.connect() as first, service.connect() as second:
        first.send('{"t":"client_hello","p":{"protocol_version":1}}')
        for number in range(MESSAGES):
            first.send(f'{{"p":{{"seq":{number},"x":1}},"t":"trade"}}')
            second.send(f'{{"p":{{"seq":{2 * number}}},"t":"trade"}}')
        second.send("hello")
        wait_until(lambda: service.get("/stats")["application"]["delivered"] == 2 * MESSAGES + 1)
        stats = service.get("/stats")
    messages = stats["messages"]
    assert messages["received"] == 2 * MESSAGES + 2
    assert (
        messages["received"]
        == messages["consumed"] + messages["delivered"] + sum(messages["dropped"].values()) + messages["queued"]
    )
    total = sum(range(MESSAGES))
    assert stats["application"] == {"delivered": 2 * MESSAGES + 1, "sequence_sum": 3 * total, "unnumbered": 1}
    wait_until(
        lambda: service.get("/stats")["connections"]["open"] == 0 and service.get("/stats")["messages"]["queued"] == 0
    )
    books = service.get("/stats/connections")["connections"]
    assert sorted((book["received"], book["consumed"], book["application"]["sequence_sum"]) for book in books) == [
        (MESSAGES + 1, 0, 2 * total),
        (MESSAGES + 1, 1, total),
    ]
    again = service.get("/stats/connections")["connections"]
    assert sorted(again, key=str) == sorted(books, key=str), "reading takes nothing away"


def test_sigterm_stops_the_service_with_a_close_frame(service: Service) -> None:
    connection = service.connect()
    assert service.stop() == 0
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
    with pytest.raises(urllib.error.URLError):
        service.get("/healthz")


@pytest.mark.parametrize("service", ["discard"], indirect=True)
def test_without_an_application_messages_are_discarded(service: Service) -> None:
    with service.connect() as connection:
        connection.send('{"t":"x","p":{"seq":1}}')
        wait_until(lambda: service.get("/stats")["messages"]["received"] == 1)
        stats = service.get("/stats")
    assert (stats["messages"]["dropped"], stats["messages"]["delivered"], stats["application"]) == (
        {"discarded": 1},
        0,
        None,
    )
    assert service.stop() == 0


def test_token_only_prints_a_valid_token(service: Service) -> None:
    printed = subprocess.run(
        [sys.executable, str(PROGRAM), "--token-only"], capture_output=True, text=True, check=True
    ).stdout
    assert printed == printed.strip() + "\n"
    headers = {"Authorization": f"Bearer {printed.strip()}"}
    with connect(f"ws://{service.ready['address']}/wse", additional_headers=headers) as connection:
        assert '"user_id":"bench-user"' in str(connection.recv(10))


def test_a_delivery_that_does_not_exist_is_refused() -> None:
    refused = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env=os.environ | {"DELIVERY": "pigeon"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "'pigeon'" in refused.stderr


def test_host_applies_to_both_ports_and_a_flag_overrides_it(start: Callable[..., Service]) -> None:
    other_host = start(HOST="127.0.0.2")
    assert other_host.ready["address"].startswith("127.0.0.2:")
    assert other_host.ready["metrics_address"].startswith("127.0.0.2:")
    assert other_host.get("/readyz")
    home = start("--host", "127.0.0.1", HOST="127.0.0.2")
    assert home.ready["metrics_address"].startswith("127.0.0.1:")


def test_with_a_private_secret_tokens_of_the_public_one_are_refused(start: Callable[..., Service]) -> None:
    secret = b"k" * 32
    service = start(JWT_SECRET=secret.decode())
    with service.connect(secret), service.connect(SECRET, first_message='"AUTH_FAILED"'):
        pass


def test_a_short_secret_is_refused_and_never_printed() -> None:
    refused = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env=os.environ | {"JWT_SECRET": "k3y-of-mine" * 2},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "JWT_SECRET has 22 bytes: HS256 needs at least 32" in refused.stderr
    assert "k3y-of-mine" not in refused.stderr + refused.stdout
