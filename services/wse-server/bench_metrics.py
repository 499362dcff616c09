"""A metrics port in front of the engine's own: it serves the engine's pages and additional ones of the application."""

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Seconds; a server under full load answers late.
RESPONSE_SECONDS = 10
TEXT = "text/plain; version=0.0.4; charset=utf-8"

Page = tuple[int, str, str]
"""HTTP status, content type and body of a page."""


class MetricsPort:
    """An HTTP server for pages."""

    def __init__(self, address: tuple[str, int], page: Callable[[str], Page]) -> None:
        """Binds the address; port 0 lets the kernel choose one.

        Raises:
            OSError: the address could not be bound.
        """
        self._http = ThreadingHTTPServer(address, _handler(page))
        self.port: int = self._http.server_address[1]

    def start(self) -> None:
        """Starts serving in its own threads."""
        threading.Thread(target=self._http.serve_forever, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Stops serving. Call it only after `start()`."""
        self._http.shutdown()
        self._http.server_close()


def json_page(value: object) -> Page:
    """A page with a value as JSON."""
    return 200, "application/json", json.dumps(value)


def fetch(host: str, port: int, path: str) -> Page:
    """Gets a page of the engine's metrics port; a page with status 503 when the engine doesn't answer."""
    connection = http.client.HTTPConnection(host, port, timeout=RESPONSE_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type", TEXT), response.read().decode()
    except OSError as error:
        return 503, TEXT, f"the server does not answer: {error}\n"
    finally:
        connection.close()


def _handler(page: Callable[[str], Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET requests with pages."""

        # Clients keep their connections (HTTP/1.1), and a response fits into one packet.
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            # Only this page has a query: the cursor of the reader.
            status, kind, text = page(self.path if path == "/stats/connections" else path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Logs nothing, because requests are frequent."""

    return Handler
