"""Several threads in one process, for an interpreter without a GIL. Each thread is a gateway with one event loop.

They listen on the same port, and the kernel distributes connections over them. The threads share no state: each has its
own server, connections to the inference and books. The main thread handles the signals and adds up the books.
"""

import asyncio
import gc
import threading
from dataclasses import replace
from typing import Any

import uvloop

from python_fastapi import nogil
from python_fastapi.config import Config
from python_fastapi.metrics import MetricsServer, Snapshot, resident_bytes, total
from python_fastapi.ready import print_ready_line, reserve_port, stop_signal
from python_fastapi.server import Serving, wait_until_served


class Worker:
    """One gateway thread, as the main thread controls it."""

    def __init__(self, config: Config, port: int) -> None:
        self._config = config
        self._port = port
        self._main_loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self._main_loop.create_future()
        """Done when the thread has started its server; fails if that failed."""
        self.ended: asyncio.Future[None] = self._main_loop.create_future()
        """Done when the thread has stopped serving, with the exception if it failed."""
        threading.Thread(target=self._run, name="worker", daemon=True).start()

    def read(self) -> Snapshot:
        """Returns a reading of the thread's books. `started` must be done."""
        return self._serving.gateway.books.snapshot()

    def stop(self) -> None:
        """Makes the thread stop accepting connections and end once all sessions have ended."""
        if not self.ended.done():
            self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            uvloop.run(self._serve(), loop_factory=nogil.Loop)
        except BaseException as error:
            failure = error
        self._main_loop.call_soon_threadsafe(self._report_end, failure)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._serving = Serving(self._config, self._port)
        self._main_loop.call_soon_threadsafe(self.started.set_result, None)
        await self._serving.until(self._stop)

    def _report_end(self, failure: BaseException | None) -> None:
        for future in (self.started, self.ended):
            if not future.done():
                if failure:
                    future.set_exception(failure)
                else:
                    future.set_result(None)


async def serve(config: Config) -> int:
    """Serves with several event loops until SIGTERM or SIGINT. Returns the exit status; 1 if a thread ended before."""
    stop = stop_signal()
    count = config.workers()
    worker_config = replace(config, max_connections=-(-config.max_connections // count))
    with reserve_port(config.host, config.port) as reserved:
        address = reserved.getsockname()[:2]
        workers = [Worker(worker_config, address[1]) for _ in range(count)]
        await asyncio.gather(*(worker.started for worker in workers))
        metrics = MetricsServer(
            config.host,
            config.metrics_port,
            lambda: (total(worker.read() for worker in workers), resident_bytes()),
            lambda: not stop.is_set(),
        )
        await wait_until_served(config.host, address[1])
        # The kernel decides which thread's server gets each of these requests, so there are more of them than threads.
        for _ in range(8 * count):
            await nogil.hold_server(config.host, address[1])
        nogil.collect_periodically()
        gc.collect()
        gc.freeze()
        print_ready_line(address, (config.host, metrics.server_port))
        ends: list[asyncio.Future[Any]] = [worker.ended for worker in workers]
        await asyncio.wait([asyncio.create_task(stop.wait()), *ends], return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*ends)
    return 0 if stop.is_set() else 1
