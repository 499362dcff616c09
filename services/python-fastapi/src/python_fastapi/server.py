"""The FastAPI application, the Granian server that runs it, and the lifecycle of a process with one event loop."""

import asyncio
import gc
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server.embed import Server
from starlette.routing import WebSocketRoute

from python_fastapi import HAS_GIL, NAME, VERSION, nogil
from python_fastapi.asgi import Receive, Send
from python_fastapi.config import Config
from python_fastapi.gateway import Gateway
from python_fastapi.inference import Inference
from python_fastapi.metrics import Books, MetricsServer, resident_bytes
from python_fastapi.ready import print_ready_line, reserve_port, stop_signal
from python_fastapi.rounds import Rounds
from python_fastapi.session import Session

BACKLOG: Final = 8192
# Granian's default logs to standard output, which is for the ready line only, and logs each step of a normal start.
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"generic": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "generic", "stream": "ext://sys.stderr"}},
    "root": {"level": "WARNING", "handlers": ["console"]},
    "loggers": {"_granian": {"level": "ERROR"}, "granian.access": {"level": "ERROR"}},
}

if not HAS_GIL:
    LOGGING["handlers"]["hold"] = {"()": nogil.ThreadHolder}
    LOGGING["loggers"]["_granian"] = {"level": "DEBUG", "handlers": ["hold"], "propagate": False}


class Endpoint:
    """The ASGI endpoint of `/ws/stt`. FastAPI's WebSocket class isn't used: it costs a coroutine per message."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, _scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        reject_reason = self._reject_reason()
        if reject_reason is not None:
            with self._gateway.books.lock:
                self._gateway.books.rejected[reject_reason] += 1
            await deny(send, 503)
            return
        await send({"type": "websocket.accept"})
        await Session(self._gateway, receive, send).run()

    def _reject_reason(self) -> str | None:
        """Returns the reject reason while no session is accepted; `None` otherwise."""
        limit = self._gateway.config.max_connections
        if not self._gateway.accepting:
            return "draining"
        return "full" if limit and self._gateway.books.open >= limit else None


class NotFound:
    """The ASGI endpoint of unknown WebSocket paths. It responds with 404; the router would respond with 403."""

    async def __call__(self, _scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        await deny(send, 404)


async def deny(send: Send, status: int) -> None:
    """Refuses a WebSocket handshake with this HTTP status."""
    headers = [(b"content-length", b"0")]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b""})


def application(gateway: Gateway) -> FastAPI:
    """Creates the application that `PORT` serves: `/health` and `/ws/stt`."""
    app = FastAPI(title=NAME, version=VERSION, openapi_url=None)

    @app.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"ok": True, "runtime": NAME})

    # A GET request without an upgrade. Because the route exists for GET, other methods get 405 with `Allow: GET`.
    @app.get("/ws/stt")
    async def upgrade_required() -> JSONResponse:
        return JSONResponse(
            {"detail": "upgrade to a WebSocket"}, 426, {"Connection": "Upgrade", "Upgrade": "websocket"}
        )

    app.router.routes.append(WebSocketRoute("/ws/stt", Endpoint(gateway)))
    app.router.routes.append(WebSocketRoute("/{path:path}", NotFound()))
    return app


async def wait_until_served(host: str, port: int) -> None:
    """Returns once `/health` responds with 200. It tries again every 10 ms, without a time limit."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status_line = await reader.read(12)
            writer.close()
            if status_line == b"HTTP/1.1 200":
                return
        except OSError:
            pass
        await asyncio.sleep(0.01)


class Serving:
    """A gateway on the running event loop, and the server that passes connections to it."""

    def __init__(self, config: Config, port: int) -> None:
        self.gateway = Gateway(config, Books(), Inference(config), Rounds(asyncio.get_running_loop()))
        self._server = Server(
            application(self.gateway),
            address=config.host,
            port=port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            backlog=BACKLOG,
            backpressure=1 << 20,
            log_dictconfig=LOGGING,
            log_level=LogLevels.error if HAS_GIL else LogLevels.debug,
        )
        self._task = asyncio.create_task(self._server.serve())

    async def until(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set or the server ends, then drains the sessions and stops the server."""
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((self._task, stopping), return_when=asyncio.FIRST_COMPLETED)
        await self.gateway.drain()
        self._server.stop()  # type: ignore[no-untyped-call]
        await self._task


async def serve(config: Config) -> int:
    """Serves with one event loop until SIGTERM or SIGINT. Returns the exit status; 1 if the server ended before."""
    stop = stop_signal()
    with reserve_port(config.host, config.port) as reserved:
        address = reserved.getsockname()[:2]
        serving = Serving(config, address[1])
        gateway = serving.gateway
        metrics = MetricsServer(
            config.host,
            config.metrics_port,
            lambda: (gateway.books.snapshot(), resident_bytes()),
            lambda: gateway.accepting,
        )
        await wait_until_served(config.host, address[1])
        if not HAS_GIL:
            await nogil.hold_server(config.host, address[1])
            nogil.collect_periodically()
        gc.collect()
        gc.freeze()
        print_ready_line(address, (config.host, metrics.server_port))
        await serving.until(stop)
    return 0 if stop.is_set() else 1
