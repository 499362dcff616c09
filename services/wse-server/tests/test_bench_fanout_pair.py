"""Two instances and their link as one service: deliveries, books, and the end of processes."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness import wait_until
from test_bench_fanout_server import Fanout, subscriber, ticks

PROGRAM = Path(__file__).resolve().parents[1] / "bench_fanout_pair.py"
LINKS = {"redis": ["--link", "redis"], "cluster": ["--link", "cluster"], "tls": ["--link", "cluster", "--tls"]}


class Pair(Fanout):
    """A started pair of instances."""

    program = PROGRAM

    def link(self) -> dict[str, Any]:
        """The books of the link between the instances."""
        links = self.get("/stats/links")
        (found,) = (link for link in links.values() if link)
        books: dict[str, Any] = found
        return books

    def rests(self) -> bool:
        """Whether publishing has ended and all publications have arrived."""
        link = self.link()
        arrived = link["sent"] == link["received"] + link["lost"] and not link["queued"]
        return arrived and not self.publisher()["publishing"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pair]]:
    """Starts pairs with their own folder for certificates; stops them after the test."""
    monkeypatch.chdir(tmp_path)
    started: list[Pair] = []

    def start(link: str, *arguments: str) -> Pair:
        started.append(Pair(*LINKS[link], *arguments))
        return started[-1]

    yield start
    for service in started:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            service.stop()
        service.kill()


@pytest.mark.parametrize("link", LINKS)
def test_publications_reach_the_other_instance_in_order_and_the_books_balance(
    start: Callable[..., Pair], link: str
) -> None:
    service = start(link, "--rate", "1000")
    assert service.publisher()["published"] == 0, "nothing is published for nobody"
    with subscriber(service) as first, subscriber(service) as second:
        for connection in (first, second):
            received = [tick["seq"] for tick in ticks(connection, 300)]
            assert received == list(range(received[0], received[0] + 300))
    wait_until(service.rests)
    publisher, books = service.publisher(), service.link()
    assert publisher["mode"] == ("pubsub" if link == "redis" else "cluster")
    assert books["published"] == publisher["published"] >= 300
    assert books["published"] == books["sent"] + sum(books["dropped"].values())
    assert (books["sent"], books["delivered"], books["lost"]) == (books["received"], books["received"], 0)
    assert set(books["dropped"]) <= {"unwanted"}, "only what came after the last subscriber had gone"


@pytest.mark.parametrize("link", ["redis", "cluster"])
def test_a_flood_loses_nothing_and_does_not_run_ahead_of_its_subscribers(start: Callable[..., Pair], link: str) -> None:
    service = start(link, "--backlog-bytes", "100000")
    with subscriber(service) as connection:
        received = [tick["seq"] for tick in ticks(connection, 20_000)]
        assert received == list(range(received[0], received[0] + 20_000))
        stats = service.publisher()
        assert stats["backpressure"] == "receivers"
        # At most the backlog limit, plus the buffers of kernel and client.
        assert (stats["published"] - received[-1]) * 100 < 100_000 + (32 << 20)
    wait_until(service.rests)
    books = service.link()
    assert books["lost"] == 0
    assert set(books["dropped"]) <= {"unwanted"}


def test_numbers_continue_when_subscribers_return(start: Callable[..., Pair]) -> None:
    service = start("cluster", "--rate", "500")
    with subscriber(service) as connection:
        ticks(connection, 10)
    wait_until(service.rests)
    rest = service.publisher()["published"]
    with subscriber(service) as connection:
        assert ticks(connection, 1)[0]["seq"] >= rest


@pytest.mark.parametrize(("link", "names"), [("redis", {"redis"}), ("cluster", set())])
def test_its_processes_are_listed_by_name_and_complete(start: Callable[..., Pair], link: str, names: set[str]) -> None:
    service = start(link)
    with subscriber(service) as connection:
        ticks(connection, 1000)
        processes = service.get("/stats/processes")["processes"]
    assert set(processes) == {"publisher", "subscriber", "launcher"} | names
    pids = {one["pid"] for one in processes.values()}
    assert pids == {service.ready["pid"], *service.children()}
    assert all(one["cpu_ns"] > 0 and one["rss_bytes"] > 1 << 20 for one in processes.values())


@pytest.mark.parametrize("link", ["redis", "cluster"])
def test_a_signal_stops_all_processes_during_a_flood(start: Callable[..., Pair], link: str) -> None:
    service = start(link)
    children = service.children()
    with subscriber(service) as connection:
        ticks(connection, 100)
        assert service.stop() == 0
    assert not any(exists(pid) for pid in children)


def test_the_service_stops_when_one_process_exits(start: Callable[..., Pair]) -> None:
    service = start("redis")
    processes = service.get("/stats/processes")["processes"]
    os.kill(processes["redis"]["pid"], signal.SIGKILL)
    assert service.process.wait(10) == 1
    wait_until(lambda: not any(exists(one["pid"]) for one in processes.values()))


@pytest.mark.parametrize("link", ["redis", "cluster"])
def test_no_process_outlives_the_launcher(start: Callable[..., Pair], link: str) -> None:
    service = start(link)
    children = service.children()
    service.process.kill()
    service.process.wait(10)
    wait_until(lambda: not any(exists(pid) for pid in children))


def test_its_redis_admits_no_other_user(start: Callable[..., Pair]) -> None:
    service = start("redis")
    pid = service.get("/stats/processes")["processes"]["redis"]["pid"]
    with socket.create_connection(("127.0.0.1", listening_port(pid)), 10) as connection:
        connection.sendall(b"PUBLISH wse:bench_topic x\r\n")
        assert connection.recv(64).startswith(b"-NOAUTH")
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert b"requirepass" not in command


def test_an_unknown_link_is_refused(tmp_path: Path) -> None:
    for command_line in (["--link", "pigeon"], [], ["--link", "redis", "--tls"]):
        done = subprocess.run(
            [sys.executable, PROGRAM, *command_line], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 2, done.stderr


def test_without_a_redis_the_error_names_how_to_get_one(tmp_path: Path) -> None:
    program = (
        "import bench_redis; from pathlib import Path; bench_redis.BUILT_PROGRAM = Path('/nowhere');"
        "import bench_fanout_pair as pair; pair.main()"
    )
    command_line = [sys.executable, "-c", program, "--link", "redis", "--port", "0", "--metrics-port", "0"]
    paths = os.pathsep.join([str(PROGRAM.parent), *sys.path])
    environment = os.environ | {"PATH": str(tmp_path), "PYTHONPATH": paths}
    done = subprocess.run(command_line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "run tools/redis-env" in done.stderr


def exists(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def listening_port(pid: int) -> int:
    """The port of 127.0.0.1 on which a process listens."""
    links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (port,) = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in sockets}
    return port


class Instance(Fanout):
    """A single instance with its own command line, as the published benchmarks start them."""

    program = PROGRAM.with_name("bench_fanout_server.py")


@pytest.fixture
def instances() -> Iterator[Callable[..., Instance]]:
    """Starts instances; stops them after the test."""
    started: list[Instance] = []

    def start(*arguments: str, **environment: str) -> Instance:
        started.append(Instance(*arguments, **environment))
        return started[-1]

    yield start
    for instance in started:
        instance.kill()


def status(instance: Instance, path: str) -> int:
    """The HTTP status of a page of the metrics port."""
    try:
        with urllib.request.urlopen(f"http://{instance.ready['metrics_address']}{path}") as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        # Closing the error releases its connection.
        with error:
            return error.code


def test_the_forwarding_instance_reports_the_publishing_one(instances: Callable[..., Instance]) -> None:
    publisher = instances("--mode", "cluster", "--rate", "500", "--cluster-port", "0")
    found = publisher.ready["cluster_address"]
    environment_of = {
        "MODE": "cluster-subscribe",
        "PEERS": found,
        "PUBLISHER_METRICS": publisher.ready["metrics_address"],
    }
    subscribing = instances("--cluster-port", "0", **environment_of)
    wait_until(lambda: status(subscribing, "/readyz") == 200)
    with subscriber(subscribing) as connection:
        ticks(connection, 100)
    wait_until(lambda: not publisher.publisher()["publishing"])
    assert subscribing.publisher() == publisher.publisher()

    def balances() -> bool:
        books = subscribing.get("/stats/links")["cluster"]
        return bool(books["sent"] == books["received"] == books["delivered"] >= 100)

    wait_until(balances)
    assert publisher.get("/stats/links")["cluster"]["received"] == 0, "alone it reports only itself"


def test_the_publishers_own_connections_are_subscribers_too(instances: Callable[..., Instance]) -> None:
    publisher = instances("--mode", "cluster", "--rate", "500", "--cluster-port", "0")
    with subscriber(publisher) as connection:
        received = [tick["seq"] for tick in ticks(connection, 50)]
    assert received == list(range(received[0], received[0] + 50))


def test_an_instance_is_ready_only_while_it_is_connected(instances: Callable[..., Instance]) -> None:
    found = instances("--mode", "cluster")
    assert status(found, "/readyz") == 200, "the instance has no configured peers"
    where = found.ready["cluster_address"]
    other = instances("--mode", "cluster-subscribe", "--peers", where)
    wait_until(lambda: status(other, "/readyz") == 200)
    assert status(other, "/stats/publisher") == 404
    assert found.stop() == 0
    wait_until(lambda: status(other, "/readyz") == 503)
    assert status(other, "/healthz") == 200
