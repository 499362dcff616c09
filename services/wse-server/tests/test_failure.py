"""A server that loses one of its threads says so, and a program that drains it ends with an error."""

import subprocess
import sys

# Replaces the epoll descriptor of a thread that serves connections, so that its next wait fails.
PROGRAM = """
import os, socket
from wse_server import RustWSEServer

server = RustWSEServer("127.0.0.1", 0, shards=2)
server.start()
assert server.is_ready() and server.failure() is None
folder = "/proc/self/fd"
links = {int(fd): os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.lexists(f"{folder}/{fd}")}
polls = [fd for fd, link in links.items() if "eventpoll" in link]
assert len(polls) == 2, polls
null = os.open("/dev/null", os.O_RDONLY)
os.dup2(null, min(polls))
try:
    while True:
        # Connections wake the thread out of the wait that has begun.
        socket.create_connection(server.address).close()
        server.drain_batch()
except RuntimeError as error:
    assert not server.is_running() and not server.is_ready()
    print(server.failure())
    server.stop()
    while server.drain_batch():
        pass
    raise
"""


def test_a_lost_thread_ends_the_program_with_an_error_that_names_it() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1, ended.stderr
    assert "has ended: failed to wait for events: Invalid argument" in ended.stdout
    assert f"the server has failed: {ended.stdout.strip()}; call stop(), and start the process again" in ended.stderr
