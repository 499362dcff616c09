"""The client of a service's metrics port."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from wse_py_bench.service import Service


class Pages(HTTPServer):
    """A metrics port; its cursor is the number of the request, or absent."""

    has_cursors = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        cursor = {"cursor": str(len(self.server.paths))} if self.server.has_cursors else {}
        body = json.dumps({"connections": [], **cursor}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002
        """Logs nothing."""


@pytest.fixture
def pages() -> Iterator[Pages]:
    """A metrics port that answers until the test has ended."""
    with Pages() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("has_cursors", "second"), [(True, "1"), (False, "")])
def test_each_reading_of_connections_begins_where_the_last_one_ended(
    pages: Pages, has_cursors: bool, second: str
) -> None:
    pages.has_cursors = has_cursors
    service = Service(f"http://127.0.0.1:{pages.server_port}")
    assert [service.connections() for _ in range(2)] == [[], []]
    assert pages.paths == ["/stats/connections?since=", f"/stats/connections?since={second}"]
