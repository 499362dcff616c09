"""The cluster's API over one connection that kubectl holds: a process of kubectl for each look costs more than it."""

import http.client
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REQUEST_SECONDS = 60


class Api:
    """Reads paths of the API server through a `kubectl proxy`."""

    def __init__(self, listens: Path) -> None:
        """`listens`: the socket of the proxy, in a folder that only this user can enter: any caller is let in."""
        self.socket = listens

    def get(self, path: str) -> tuple[int, str]:
        """The status code and the body of a GET."""
        connection = Connection(self.socket)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def read(self, path: str) -> str:
        """The body of a GET that must succeed."""
        status, body = self.get(path)
        assert status == http.HTTPStatus.OK, f"GET {path}: {status}: {body.strip()}"
        return body


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_SECONDS)
        self.path = path

    def connect(self) -> None:
        """Connects to the socket's file in place of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


@contextmanager
def proxy(kubeconfig: Path) -> Iterator[Api]:
    """The API of the cluster that a kubeconfig file names, while the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "api"
        command = ["kubectl", "--kubeconfig", str(kubeconfig), "proxy", f"--unix-socket={path}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        with process, process.stdout:
            try:
                # It says so when it listens, and closes its output when it can't.
                assert process.stdout.readline(), "kubectl proxy ended without listening"
                yield Api(path)
            finally:
                process.terminate()
