"""A server in a fork of its process: nothing pretends to work there, and the process with the threads isn't touched."""

import subprocess
import sys
import textwrap

import pytest
from harness import DEADLINE_SECONDS

PARENT = """
import os, sys
from wse_server import RustWSEServer

server = RustWSEServer("127.0.0.1", 0)
server.start()
child = os.fork()
if child == 0:
    {child}
    sys.exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), server.is_running(), server.get_connection_count())
server.stop()
"""


def run(child: str) -> str:
    """Runs a program whose child runs these lines; returns the child's exit code and what the parent sees then."""
    program = PARENT.format(child=textwrap.indent(textwrap.dedent(child), "    ").strip())
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=6 * DEADLINE_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize(
    "call",
    [
        "broadcast_all('x')",
        "broadcast('a', 'x')",
        "send('x', 'y')",
        "get_connection_count()",
        "start()",
        "drain_inbound()",
    ],
)
def test_a_call_in_a_fork_says_that_the_server_is_elsewhere(call: str) -> None:
    child = f"""
        try:
            server.{call}
        except RuntimeError as error:
            assert "forked" in str(error), error
            sys.exit(5)
    """
    assert run(child) == "5 True 0"


@pytest.mark.parametrize("ends", ["pass", "server.stop()", "del server", "server.stop(); os._exit(7)"])
def test_a_fork_that_ends_leaves_the_server_alone(ends: str) -> None:
    assert run(ends) == "7 True 0"


def test_a_fork_may_start_a_server_of_its_own() -> None:
    child = """
        own = RustWSEServer("127.0.0.1", 0)
        own.start()
        own.broadcast_all("x")
        assert own.is_running() and not server.is_running()
        own.stop()
    """
    assert run(child) == "7 True 0"
