"""Starts real services for the tests, and runs the programs as a user does."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "loadgen/python"))

Start = Callable[..., list[str]]
RunBench = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts services on ports that the kernel chooses; returns the flags that point to them."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str) -> list[str]:
        service = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(service)
        assert service.stdout is not None
        line: dict[str, Any] = json.loads(service.stdout.readline())
        return ["--port", line["address"].split(":")[1], "--stats-url", f"http://{line['metrics_address']}"]

    yield start
    for service in started:
        service.terminate()
        service.communicate()


@pytest.fixture
def wse(start: Start) -> Callable[[str], list[str]]:
    """Starts the WSE service with a delivery mode."""
    program = [sys.executable, "services/wse-server/bench_server.py", "--port", "0", "--metrics-port", "0"]
    return lambda delivery: start(*program, "--delivery", delivery)


@pytest.fixture
def flawed(start: Start) -> Callable[[str], list[str]]:
    """Starts a service with a known fault."""
    return lambda flaw: start("target/release/self-test-service", "--flaw", flaw, "--every", "50")


@pytest.fixture
def bench() -> RunBench:
    """Runs one of the programs until it exits."""

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, f"loadgen/python/bench_{program}.py", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    return run
