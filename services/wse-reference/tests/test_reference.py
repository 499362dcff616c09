"""The generator against PyPI `wse-server`: it speaks with it, and shows how much it drops."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from bench_format.meaning import OF_BUSY_MACHINES

ROOT = Path(__file__).resolve().parents[3]
CONNECTIONS = 20


@contextmanager
def started(program: str, *options: str) -> Iterator[dict[str, Any]]:
    """The reference behind one of its programs; its ready line."""
    command = [ROOT / ".tools/reference/bin/python", ROOT / "services/wse-reference" / program]
    ports = ("--port", "0", "--metrics-port", "0")
    with subprocess.Popen([*command, *ports, *options], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


@pytest.fixture
def service() -> Iterator[dict[str, Any]]:
    """The reference with its drain mode on; its ready line."""
    with started("server.py") as ready:
        yield ready


def bench(service: dict[str, Any], test: str, *options: str) -> dict[str, Any]:
    """The measurement of one tier, of which nothing may be wrong but what a busy machine does."""
    port = service["address"].rpartition(":")[2]
    command = [ROOT / "target/release/wse-bench", "--port", port, "--test", test, "--tiers", str(CONNECTIONS)]
    stats = f"http://{service['metrics_address']}"
    options = ("--duration", "1", "--stats-url", stats, "--output", "json", *options)
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    assert done.stdout, done.stderr
    [row] = json.loads(done.stdout)
    wrong = [problem for problem in row["problems"] if problem.partition(":")[0] not in OF_BUSY_MACHINES]
    assert not wrong, wrong
    assert done.returncode == (1 if row["problems"] else 0), done.stdout + done.stderr
    measured: dict[str, Any] = row["measured"]
    return measured


# A generator that hardly gets a CPU writes no faster than the reference reads.
FLOODS = 5


def test_a_flood_shows_how_many_messages_the_reference_dropped(service: dict[str, Any]) -> None:
    floods = (bench(service, "throughput", "--coalesce", "64") for _ in range(FLOODS))
    measured = next(flood for flood in floods if flood["messages"]["dropped"])
    messages = measured["messages"]
    assert measured["witness"] == "application"
    assert messages["dropped"]["inbound_overflow"] > 0
    assert messages["sent"] == messages["delivered"] + messages["dropped"]["inbound_overflow"]
    assert messages["lost"] == messages["wrong"] == messages["unsent"] == 0
    assert measured["figures"]["delivered_per_second"] < measured["figures"]["written_per_second"]


def test_every_ping_is_answered(service: dict[str, Any]) -> None:
    measured = bench(service, "ping-latency")
    assert measured["witness"] == "reply"
    assert measured["messages"]["sent"] == measured["messages"]["delivered"] > 0
    assert measured["percentiles"]


def test_a_storm_opens_every_connection(service: dict[str, Any]) -> None:
    connections = bench(service, "connection-storm")["connections"]
    assert connections["open"] == connections["attempted"] == CONNECTIONS


def test_the_reference_has_no_books_per_connection(service: dict[str, Any]) -> None:
    with pytest.raises(HTTPError) as caught, urlopen(f"http://{service['metrics_address']}/stats/connections"):
        pass
    caught.value.close()
    assert caught.value.code == 404


def test_an_offered_flood_has_the_given_deliveries_and_all_arrive() -> None:
    with started("fanout_server.py", "--offered-deliveries", "100000") as service:
        measured = bench(service, "fanout-broadcast")
        with urlopen(f"http://{service['metrics_address']}/stats/publisher") as response:
            publisher = json.load(response)
    assert (publisher["mode"], publisher["backpressure"]) == ("broadcast", "offer")
    # Without the offer it would be millions. What a machine that stood still owes comes afterwards.
    assert 0 < measured["figures"]["delivered_per_second"] < 2 * 100_000
    assert measured["messages"]["lost"] == measured["messages"]["wrong"] == 0


def test_an_invalid_rate_is_refused_with_the_name_of_its_flag() -> None:
    command = [ROOT / ".tools/reference/bin/python", ROOT / "services/wse-reference/fanout_server.py"]
    done = subprocess.run([*command, "--offered-deliveries", "-1"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--offered-deliveries: -1 is not a rate" in done.stderr


@pytest.mark.parametrize("rate", ["many", "0", "inf"])
def test_an_invalid_rate_in_the_environment_is_refused_with_the_name_of_its_flag(rate: str) -> None:
    command = [ROOT / ".tools/reference/bin/python", ROOT / "services/wse-reference/fanout_server.py"]
    environment = {**os.environ, "OFFERED_DELIVERIES": rate}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"--offered-deliveries: {rate} is not a rate" in done.stderr
