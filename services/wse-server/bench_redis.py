"""A private Redis server: on loopback, with a random password, without persistence."""

import ctypes
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from bench_processes import stop_process

# The server that `tools/redis-env` provides.
BUILT_PROGRAM = Path(__file__).resolve().parents[2] / ".tools" / "redis" / "bin" / "redis-server"
NAMES = ("redis-server", "valkey-server")
READY_SECONDS = 10
STOP_SECONDS = 2
# Attempts to start, because a free port may be taken before it is used.
ATTEMPTS = 5
# prctl(2): the signal that a process gets when its parent exits.
PR_SET_PDEATHSIG = 1


class PrivateRedis:
    """A Redis server that ends with this process."""

    def __init__(self) -> None:
        """Starts the server and waits until it answers.

        Raises:
            RuntimeError: no server is installed, or it doesn't start.
        """
        self._program = find()
        self._folder = tempfile.TemporaryDirectory(prefix="wse-redis-")
        self._password = secrets.token_hex(16)
        for _ in range(ATTEMPTS):
            self._port = free_port()
            self.process = self._start()
            if self._responds():
                return
            self.stop()
        raise RuntimeError(f"{self._program} did not start within {READY_SECONDS} s")

    @property
    def url(self) -> str:
        """The URL of the server, with the password."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Stops the Redis server and waits until its process has ended."""
        stop_process(self.process, STOP_SECONDS)

    def remove(self) -> None:
        """Deletes the server's folder. Call it only after `stop()`."""
        self._folder.cleanup()

    def _start(self) -> subprocess.Popen[bytes]:
        rules = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "requirepass": self._password,
            "save": '""',
            "appendonly": "no",
            "dir": self._folder.name,
            "loglevel": "warning",
        }
        # Options are not passed as arguments, because all users of a machine can see command lines.
        process = subprocess.Popen(
            [self._program, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=_exit_with_parent
        )
        assert process.stdin is not None
        process.stdin.write("".join(f"{name} {value}\n" for name, value in rules.items()).encode())
        process.stdin.close()
        return process

    def _responds(self) -> bool:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self._port), 1) as connection:
                    # Another program on the port would not accept the password.
                    connection.sendall(f"AUTH {self._password}\r\n".encode())
                    if connection.recv(64).startswith(b"+OK"):
                        return True
            except OSError:
                pass
            time.sleep(0.01)
        return False


def find() -> str:
    """Finds the program of a Redis server.

    Raises:
        RuntimeError: no server is installed.
    """
    found = str(BUILT_PROGRAM) if BUILT_PROGRAM.is_file() else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("no Redis is installed: run tools/redis-env, or put redis-server on PATH")
    return found


def version() -> str:
    """The name and version of the installed server, such as `Redis 8.0.2`.

    Raises:
        RuntimeError: no server is installed, or it doesn't print its version.
    """
    output = subprocess.run([find(), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^(\w+) server v=(\S+)", output)
    if found is None:
        raise RuntimeError(f"{find()} --version printed no version: {output!r}")
    return f"{found[1]} {found[2]}"


def free_port() -> int:
    """A free port of this machine; another program may take it before it is used."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


_parent = os.getpid()
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def _exit_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # If the parent exited before the call above, no signal will come.
    if os.getppid() != _parent:
        os._exit(1)
