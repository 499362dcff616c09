"""Several processes behind one ready line: each is the gateway with one event loop, on the same port.

The kernel deals connections out to them. This process only adds up what they count, and passes SIGTERM on.
"""

import asyncio
import ctypes
import json
import signal
import sys
import urllib.request
from dataclasses import dataclass
from typing import Any

from python_fastapi.config import Config
from python_fastapi.metrics import MetricsServer, Snapshot, resident_bytes, total
from python_fastapi.ready import reserve, say_ready, stop_signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Worker:
    """One of the processes, and where it shows its books."""

    process: asyncio.subprocess.Process
    metrics_address: str

    def read(self) -> tuple[Snapshot, int]:
        """Its books and its memory."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/reading", timeout=5) as answer:
            reading, resident = json.load(answer)
        return reading, resident


def _end_with_parent() -> None:
    """Has the kernel end a worker whose parent was killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def start(config: Config, port: int) -> Worker:
    """Starts a worker on `port`, with the same settings from the same places; returns when it serves."""
    share = -(-config.max_connections // config.workers())
    own = ["--port", str(port), "--metrics-port", "0", "--worker-threads", "1", "--max-connections", str(share)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "python_fastapi", *sys.argv[1:], *own),
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=_end_with_parent,
    )
    if process.stdout is None:
        raise RuntimeError("a worker has no standard output")
    line = await process.stdout.readline()
    if not line:
        raise OSError(f"a worker ended with status {await process.wait()} before it served")
    ready: dict[str, Any] = json.loads(line)
    return Worker(process, ready["metrics_address"])


def read(workers: list[Worker]) -> tuple[Snapshot, int]:
    """The books of all workers, and the memory of all processes."""
    readings = [worker.read() for worker in workers]
    return total(reading for reading, _ in readings), resident_bytes() + sum(resident for _, resident in readings)


async def finish(workers: list[Worker]) -> int:
    """Stops the workers; the status of the first that ended otherwise than well, else 0."""
    for worker in workers:
        if worker.process.returncode is None:
            worker.process.send_signal(signal.SIGTERM)
    statuses = [await worker.process.wait() for worker in workers]
    return next((status for status in statuses if status), 0)


async def serve(config: Config) -> int:
    """Serves with several processes until SIGTERM or SIGINT; returns the exit status."""
    stop = stop_signal()
    with reserve(config.host, config.port) as reserved:
        address = reserved.getsockname()[:2]
        started = await asyncio.gather(*(start(config, address[1]) for _ in range(config.workers())))
        metrics = MetricsServer(config.host, config.metrics_port, lambda: read(started), lambda: not stop.is_set())
        say_ready(address, (config.host, metrics.server_port))
        ends = [asyncio.create_task(worker.process.wait()) for worker in started]
        await asyncio.wait([asyncio.create_task(stop.wait()), *ends], return_when=asyncio.FIRST_COMPLETED)
        return await finish(started)
