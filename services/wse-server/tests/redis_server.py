"""A real Redis for tests, with its own folder and port."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from bench_redis import free_port

PROGRAM = Path(__file__).parents[3] / ".tools/redis/bin/redis-server"
PASSWORD = "s3cret p@ss/word"
TIMEOUT_SECONDS = 20.0


class RedisServer:
    """A Redis server on a free port; it can be restarted on the same port after `kill()`."""

    def __init__(self, folder: Path, *options: str, password: str | None = None) -> None:
        assert PROGRAM.exists(), "no Redis for tests: run tools/redis-env"
        self.folder = folder
        self.options = options
        self.password = password
        self.process: subprocess.Popen[bytes] | None = None
        while True:
            self.port = free_port()
            # If another program has taken the port meanwhile, try another one.
            if self.start():
                return

    def start(self) -> bool:
        """Starts the server and waits until it answers. Returns False if it exits."""
        command = [str(PROGRAM), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "no", *self.options]
        if self.password is not None:
            command += ["--requirepass", self.password]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.process.poll() is None:
            try:
                if self.execute("PING") == "PONG":
                    return True
            except (OSError, RuntimeError):
                assert time.monotonic() < deadline, "Redis does not answer"
                time.sleep(0.01)
        return False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Kills the server, as a crash would end it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        # Waits until the process has stopped.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def execute(self, *arguments: str | bytes) -> Any:
        """Sends one command and decodes its reply; an error reply raises RuntimeError."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_SECONDS) as connection:
            lines = connection.makefile("rwb")
            if self.password is not None:
                lines.write(command("AUTH", self.password))
            lines.write(command(*arguments))
            lines.flush()
            if self.password is not None:
                read_reply(lines)
            return read_reply(lines)


def command(*arguments: str | bytes) -> bytes:
    parts = [word.encode() if isinstance(word, str) else word for word in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def read_reply(lines: Any) -> Any:
    line: bytes = lines.readline()
    if not line:
        raise OSError("Redis closed the connection")
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest.decode()
        case b"-":
            raise RuntimeError(rest.decode())
        case b":":
            return int(rest)
        case b"$":
            return None if rest == b"-1" else lines.read(int(rest) + 2)[:-2]
        case _:
            return [read_reply(lines) for _ in range(int(rest))]
