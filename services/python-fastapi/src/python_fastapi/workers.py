"""Several worker processes behind one ready line. Each is a gateway with one event loop, on the same port.

The kernel distributes connections over them. The parent process only adds up their books and forwards SIGTERM.
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
from python_fastapi.ready import print_ready_line, reserve_port, stop_signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process, and the `host:port` of its metrics port."""

    process: asyncio.subprocess.Process
    metrics_address: str

    def read(self) -> tuple[Snapshot, int]:
        """Returns the worker's books and its resident bytes, from its metrics port."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/reading", timeout=5) as response:
            reading, resident = json.load(response)
        return reading, resident


def _end_with_parent() -> None:
    """Makes the kernel send SIGTERM to this process when its parent dies. It runs in the child, before exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def start(config: Config, port: int) -> Worker:
    """Starts a worker on `port` with this process's flags and environment, and returns once it is ready.

    Raises `OSError` if it ends before.
    """
    share = -(-config.max_connections // config.workers())
    flags = ["--port", str(port), "--metrics-port", "0", "--worker-threads", "1", "--max-connections", str(share)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "python_fastapi", *sys.argv[1:], *flags),
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


def read_all(workers: list[Worker]) -> tuple[Snapshot, int]:
    """Returns the sum of the workers' books, and the resident bytes of all processes with the parent."""
    readings = [worker.read() for worker in workers]
    return total(reading for reading, _ in readings), resident_bytes() + sum(resident for _, resident in readings)


async def finish(workers: list[Worker]) -> int:
    """Stops the workers. Returns the first exit status that isn't 0, else 0."""
    for worker in workers:
        if worker.process.returncode is None:
            worker.process.send_signal(signal.SIGTERM)
    statuses = [await worker.process.wait() for worker in workers]
    return next((status for status in statuses if status), 0)


async def serve(config: Config) -> int:
    """Serves with several processes until SIGTERM or SIGINT, or until one ends. Returns the exit status."""
    stop = stop_signal()
    with reserve_port(config.host, config.port) as reserved:
        address = reserved.getsockname()[:2]
        workers = await asyncio.gather(*(start(config, address[1]) for _ in range(config.workers())))
        metrics = MetricsServer(config.host, config.metrics_port, lambda: read_all(workers), lambda: not stop.is_set())
        print_ready_line(address, (config.host, metrics.server_port))
        ends = [asyncio.create_task(worker.process.wait()) for worker in workers]
        await asyncio.wait([asyncio.create_task(stop.wait()), *ends], return_when=asyncio.FIRST_COMPLETED)
        return await finish(workers)
