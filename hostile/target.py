"""Services and other listeners as processes under attack: how each is started, and what it may use."""

import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
BIN = CHECKOUT / "target" / "release"
PATIENCE = 30.0
"""Seconds that a condition may take to come true on a busy machine."""


def until(holds: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Polls until `holds` returns something true, and returns that; raises `TimeoutError` that names `what`."""
    deadline = time.monotonic() + patience
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {patience:.0f} s")
        time.sleep(0.02)


def memory_of(pid: int) -> float:
    """Resident memory of a process in MiB; 0 after its end."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def descriptors_of(pid: int) -> int:
    """The number of open descriptors of a process; 0 after its end."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except FileNotFoundError:
        return 0


@dataclass(frozen=True)
class Program:
    """How a listener is started, and the path of its WebSocket."""

    name: str
    command: Sequence[str]
    path: str
    environment: Mapping[str, str]
    needs_inference: bool = False


ENGINE = Program(
    "wse-server",
    (sys.executable, "services/wse-server/bench_server.py", "--port", "0", "--metrics-port", "0", "--echo"),
    "/wse",
    {},
)
GATEWAYS = tuple(
    Program(name, (str(BIN / name),), "/ws/stt", {"PORT": "0", "METRICS_PORT": "0"}, needs_inference=True)
    for name in ("rust-axum", "rust-axum-plain", "rust-sync")
)
INFERENCE = Program("inference-sim", (str(BIN / "inference-sim"), "--port", "0"), "/infer", {})


class Target:
    """A started program: its addresses, memory and descriptors."""

    def __init__(self, program: Program, *, descriptors: int | None = None) -> None:
        self.program = program
        self.inference: Target | None = None
        variables = os.environ | program.environment
        if program.needs_inference:
            self.inference = Target(INFERENCE)
            variables["INFERENCE_URL"] = f"http://{self.inference.ready['address']}"
        limit = None
        if descriptors is not None:
            most = descriptors

            def limit() -> None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

        self.process = subprocess.Popen(
            program.command,
            cwd=CHECKOUT,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.stop()
            raise AssertionError(f"{program.name} ended with {self.process.returncode} before it was ready")
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def address(self) -> tuple[str, int]:
        """Where it speaks WebSocket."""
        return address_of(self.ready["address"])

    @property
    def metrics_address(self) -> tuple[str, int]:
        """Where it serves `/healthz`, `/stats` and `/metrics`."""
        return address_of(self.ready["metrics_address"])

    def memory(self) -> float:
        """Resident memory in MiB."""
        return memory_of(self.process.pid)

    def descriptors(self) -> int:
        """The number of open descriptors."""
        return descriptors_of(self.process.pid)

    def page(self, path: str) -> tuple[int, str]:
        """Status and body of a page of the metrics port."""
        host, port = self.metrics_address
        try:
            with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=PATIENCE) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Ends it and what it needs."""
        self.process.kill()
        self.process.communicate()
        if self.inference is not None:
            self.inference.stop()


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`."""
    host, _, port = text.rpartition(":")
    return host, int(port)
