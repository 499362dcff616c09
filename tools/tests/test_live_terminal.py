"""What `ladder run` shows in a terminal, with the real workers of all three families under load."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 160

HEAD = """schema: 3
name: live
why: a test of the display
seed: 1
warmup_seconds: 1
window_seconds: 4
drain_seconds: 5
"""
WEBSOCKET = """services: [honest]
websocket:
  services:
    honest:
      url: ws://127.0.0.1:{port}/wse
      command: ["{bin}/self-test-service", --port, "{port}"]
      version_command: ["{bin}/self-test-service", --version]
  open:
    - expect: { when: { json: { /t: server_ready } }, capture: { id: { json: /p/details/connection_id } } }
  messages:
    - text: '{"p":{"id":"{{captured.id}}","timestamp":{{sequence}}},"t":"ping"}'
  reply:
    when: { contains: '"t":"PONG"' }
    by: sequence
    value: { json: /p/client_timestamp }
ladders:
  - workload: request-reply
    tiers: [20]
    load: { model: open, rate_per_second: 400 }
"""
WSE = """services: [self-test-none]
ladders:
  - workload: ping-latency
    tiers: [20]
    load: { model: open, rate_per_second: 400 }
"""
SESSIONS = """services: [rust-axum]
ladders:
  - workload: sessions
    tiers: [20]
    load: { model: sessions, ramp_seconds: 0, spread_ms: 100 }
    message: { format: pcm, size_bytes: 640 }
"""


def in_terminal(command: list[str]) -> tuple[int, str]:
    """The exit code of a command in a pseudo terminal, and everything that it wrote there."""
    terminal, process = pty.openpty()
    fcntl.ioctl(process, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    env = {**os.environ, "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    child = subprocess.Popen(command, cwd=ROOT, stdin=process, stdout=process, stderr=process, env=env)
    os.close(process)
    written = bytearray()
    try:
        while part := os.read(terminal, 65536):
            written += part
    except OSError:
        pass  # A terminal without a process: the end.
    finally:
        os.close(terminal)
    return child.wait(), written.decode()


@pytest.mark.parametrize(
    ("plan", "due", "latency"),
    [(WEBSOCKET, 400, "response"), (WSE, 400, "response"), (SESSIONS, 1000, "newest")],
    ids=["ws-bench", "wse-bench", "stt-loadgen"],
)
def test_a_terminal_shows_rates_latencies_and_the_cpu_of_both_sides(
    plan: str, due: int, latency: str, tmp_path: Path
) -> None:
    file = tmp_path / "live.yaml"
    file.write_text(HEAD + plan)
    command = ["target/release/ladder", "run", str(file), "--results", str(tmp_path / "results"), "--no-report"]
    code, written = in_terminal([*command, "--no-rest", "--no-conformance"])
    # 2: on a busy machine the trial is invalid, and is shown all the same.
    assert code in (0, 2), written
    assert re.search(r"trial 1 of 1   about \d+ s left", written), written
    assert re.search(r"window \d of 4 s   █", written), written
    rates = [
        float(rate)
        for rate in re.findall(r"due (\d+)/s   sent \d+/s   answered \d+/s   errors 0   20 of 20 open", written)
    ]
    assert rates, written
    assert any(abs(rate - due) < 0.2 * due for rate in rates), rates
    assert re.search(rf"{latency} p50 ~[\d.]+ ms   p99 ~[\d.]+ ms   [\d.]+ [ ▁▂▃▄▅▆▇█]+ [\d.]+ ms", written), written
    assert re.search(r"CPU: service \d+ %   workers \d+ %", written), written
    # The lines of the live part are removed before the table is printed.
    end = written.rsplit("\x1b[2K", 1)[1]
    assert "standing" in end, written
    assert "about" not in end, written
