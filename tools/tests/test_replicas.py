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
# A service that reports its CPUs, and exits with 3 when /end is requested.
SERVICE = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(3)
        page = json.dumps({"cpus": list(os.sched_getaffinity(0))}).encode()
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


def test_each_replica_has_ports_and_cpus_of_its_own(started: tuple[subprocess.Popen[str], dict[str, Any]]) -> None:
    process, ready = started
    assert ready["pid"] == process.pid
    addresses = ready["address"].split(",")
    assert len(set(addresses)) == 2
    assert ready["metrics_address"].split(",") == addresses, "the fake service has one port for both"
    cpus = [get(address, "/stats")["cpus"] for address in addresses]
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) % 2 == 0:
        # Each CPU belongs to one replica.
        assert sorted(cpus[0] + cpus[1]) == allowed


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
