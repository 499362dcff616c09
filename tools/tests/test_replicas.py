"""services/replicas.py: several processes of a service behind one ready line."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "services/replicas.py"
# A service that counts one message, reports its CPUs, and exits with 3 when /end is requested.
SERVICE = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(3)
        cpus = {str(cpu): 1 for cpu in os.sched_getaffinity(0)}
        body = {"service": "fake", "version": "1", "uptime_seconds": 9.0, "messages": {"received": 1, "dropped": cpus}}
        page = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
    def log_message(self, *_):
        pass

assert os.environ["PORT"] == os.environ["METRICS_PORT"] == "0"
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("a banner")
address = f"127.0.0.1:{server.server_port}"
print(json.dumps({"event": "ready", "address": address, "metrics_address": address, "pid": os.getpid()}), flush=True)
server.serve_forever()
"""


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replicas", PROGRAM)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def started() -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Starts two replicas of the service; yields the process and the ready line."""
    command = [sys.executable, str(PROGRAM), "2", sys.executable, "-c", SERVICE]
    environment = os.environ | {"PORT": "1", "METRICS_PORT": "0"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()


def get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return json.load(answer)


def test_cpus_are_divided_evenly_and_shared_where_there_are_too_few() -> None:
    parts = module().parts
    assert parts([0, 1], 2) == [{0}, {1}]
    assert parts([0, 1, 2, 3, 4], 2) == [{0, 1}, {2, 3}]
    assert parts([3], 2) == [{3}, {3}]


def test_numbers_are_added_up_to_any_depth_and_names_stay() -> None:
    first = {"service": "x", "messages": {"received": 1, "dropped": {"overflow": 2}}, "application": None}
    second = {"service": "x", "messages": {"received": 3, "dropped": {"closed": 4}}, "application": None}
    added = {"service": "x", "messages": {"received": 4, "dropped": {"overflow": 2, "closed": 4}}, "application": None}
    assert module().add(first, second) == added


def test_replicas_have_addresses_of_their_own_and_their_counts_are_added_up(
    started: tuple[subprocess.Popen[str], dict[str, Any]],
) -> None:
    process, ready = started
    assert ready["pid"] == process.pid
    assert len(set(ready["address"].split(","))) == 2
    stats = get(ready["metrics_address"], "/stats")
    assert stats["service"] == "fake"
    assert stats["messages"]["received"] == 2
    assert stats["uptime_seconds"] < 9.0
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) % 2 == 0:
        # Each CPU belongs to one replica.
        assert stats["messages"]["dropped"] == {str(cpu): 1 for cpu in cpus}


def test_all_processes_end_on_a_signal(started: tuple[subprocess.Popen[str], dict[str, Any]]) -> None:
    process, ready = started
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) != 0, "the fake service dies of the signal, and that is told"
    for address in ready["address"].split(","):
        with pytest.raises(OSError, match="refused"):
            get(address, "/stats")


def test_all_end_with_the_status_of_the_one_that_ended(
    started: tuple[subprocess.Popen[str], dict[str, Any]],
) -> None:
    process, ready = started
    first, second = ready["address"].split(",")
    with pytest.raises(OSError):  # noqa: PT011
        get(first, "/end")
    assert process.wait(30) == 3
    with pytest.raises(OSError, match="refused"):
        get(second, "/stats")
