"""The bench service as a process, for tests."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from bench_server import SECRET, token

PROGRAM = Path(__file__).resolve().parents[1] / "bench_server.py"


class Service:
    """A started service with helpers for tests."""

    # A command that starts the service with other limits.
    launcher: tuple[str, ...] = ()
    program = PROGRAM

    def __init__(self, *arguments: str, **environment: str) -> None:
        program = [sys.executable, str(self.program), "--port", "0", "--metrics-port", "0"]
        command = [*self.launcher, *program, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())

    def get(self, path: str) -> Any:
        """Gets a page of the metrics port, decoded if it is JSON."""
        with urllib.request.urlopen(f"http://{self.ready['metrics_address']}{path}") as response:
            body = response.read().decode()
            return json.loads(body) if body.startswith("{") else body

    def connect(self, secret: bytes = SECRET, first_message: str = '"server_ready"') -> ClientConnection:
        """Opens a connection with a token and waits for the server's first message."""
        headers = {"Cookie": f"access_token={token(int(time.time()), secret)}"}
        connection = connect(
            f"ws://{self.ready['address']}/wse", additional_headers=headers, compression=None, legacy=True
        )
        assert first_message in str(connection.recv(10))
        return connection

    def rss_mebibytes(self) -> float:
        """The resident memory of the service's process."""
        pages = int(Path(f"/proc/{self.ready['pid']}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def descriptors(self) -> int:
        """The number of open descriptors of the service."""
        return len(list(Path(f"/proc/{self.ready['pid']}/fd").iterdir()))

    def children(self) -> list[int]:
        """The ids of the processes that the service started."""
        threads = Path(f"/proc/{self.ready['pid']}/task")
        while True:
            try:
                return [int(pid) for file in threads.glob("*/children") for pid in file.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                # When a thread ends meanwhile, its children move to another one, which may have been read before.
                assert self.process.poll() is None, "the service itself has ended"

    def stop(self) -> int:
        """Stops the service with SIGTERM and returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(5)

    def kill(self) -> None:
        """Kills the service with SIGKILL and waits until it has ended."""
        self.process.kill()
        self.process.communicate()
