"""A metrics port before the engine's own: the engine's pages as they are, and those of the application beside them."""

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# A server at its limit answers late.
ANSWER_SECONDS = 10
TEXT = "text/plain; version=0.0.4; charset=utf-8"

Page = tuple[int, str, str]
"""Status, content type, body."""


class MetricsPort:
    """Serves pages until it is stopped."""

    def __init__(self, address: tuple[str, int], page: Callable[[str], Page]) -> None:
        """Bind; port 0 lets the kernel pick.

        Raises:
            OSError: the address could not be bound.
        """
        self._http = ThreadingHTTPServer(address, _handler(page))
        self.port: int = self._http.server_address[1]

    def start(self) -> None:
        """Answer, on threads of its own."""
        threading.Thread(target=self._http.serve_forever, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Answer nothing more. Only after a start."""
        self._http.shutdown()
        self._http.server_close()


def json_page(value: object) -> Page:
    """A value as a page."""
    return 200, "application/json", json.dumps(value)


def fetch(host: str, port: int, path: str) -> Page:
    """A page of the engine's own metrics port; 503 when it is gone."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", TEXT), answer.read().decode()
    except OSError as error:
        return 503, TEXT, f"the server does not answer: {error}\n"
    finally:
        connection.close()


def _handler(page: Callable[[str], Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET."""

        # Whoever asks often keeps the connection, and gets an answer in one packet.
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            status, kind, text = page(self.path.partition("?")[0])
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Scrapes are not news."""

    return Handler
