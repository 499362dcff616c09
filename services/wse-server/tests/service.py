"""The benchmark's service as a process, for the tests."""

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
    """A started service."""

    # What starts it under other limits.
    launcher: tuple[str, ...] = ()
    program = PROGRAM

    def __init__(self, *arguments: str, **environment: str) -> None:
        program = [sys.executable, str(self.program), "--port", "0", "--metrics-port", "0"]
        command = [*self.launcher, *program, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())

    def get(self, path: str) -> Any:
        """A page of the metrics port, as JSON where it is."""
        with urllib.request.urlopen(f"http://{self.ready['metrics_address']}{path}") as answer:
            body = answer.read().decode()
            return json.loads(body) if body.startswith("{") else body

    def connect(self, secret: bytes = SECRET, greeting: str = '"server_ready"') -> ClientConnection:
        """A connection with a token, after its greeting."""
        headers = {"Cookie": f"access_token={token(int(time.time()), secret)}"}
        connection = connect(
            f"ws://{self.ready['address']}/wse", additional_headers=headers, compression=None, legacy=True
        )
        assert greeting in str(connection.recv(10))
        return connection

    def rss_mebibytes(self) -> float:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.ready['pid']}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def descriptors(self) -> int:
        """How many it has open."""
        return len(list(Path(f"/proc/{self.ready['pid']}/fd").iterdir()))

    def children(self) -> list[int]:
        """The processes that it started."""
        threads = Path(f"/proc/{self.ready['pid']}/task")
        while True:
            try:
                return [int(pid) for file in threads.glob("*/children") for pid in file.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                # A thread that ends meanwhile leaves its children to another, perhaps to one that was read before.
                assert self.process.poll() is None, "the service itself has ended"

    def stop(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(5)

    def end(self) -> None:
        """Without waiting for a farewell."""
        self.process.kill()
        self.process.communicate()
