"""The generator against PyPI `wse-server`: it speaks with it, and shows how much it drops."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONNECTIONS = 20


@pytest.fixture
def service() -> Iterator[dict[str, Any]]:
    """The reference with its drain mode on; its ready line."""
    command = [ROOT / ".tools/reference/bin/python", ROOT / "services/wse-reference/server.py"]
    with subprocess.Popen([*command, "--port", "0", "--metrics-port", "0"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


def bench(service: dict[str, Any], test: str, *options: str) -> dict[str, Any]:
    """The measurement of one tier; the books must balance, or the exit code says so."""
    port = service["address"].rpartition(":")[2]
    command = [ROOT / "target/release/wse-bench", "--port", port, "--test", test, "--tiers", str(CONNECTIONS)]
    stats = f"http://{service['metrics_address']}"
    options = ("--duration", "1", "--stats-url", stats, "--output", "json", *options)
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = json.loads(done.stdout)
    measured: dict[str, Any] = row["measured"]
    return measured


def test_a_flood_shows_how_many_messages_the_reference_dropped(service: dict[str, Any]) -> None:
    measured = bench(service, "throughput", "--coalesce", "64")
    messages = measured["messages"]
    dropped = messages["dropped"]["inbound_overflow"]
    assert measured["witness"] == "application"
    assert dropped > 0
    assert messages["sent"] == messages["delivered"] + dropped
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


def test_it_says_that_it_keeps_no_books_per_connection(service: dict[str, Any]) -> None:
    with pytest.raises(HTTPError) as caught, urlopen(f"http://{service['metrics_address']}/stats/connections"):
        pass
    caught.value.close()
    assert caught.value.code == 404
