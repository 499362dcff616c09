"""Starts servers of the league and checks that each answers.

What is checked is the set-up, before any figure. With an independent client, an echo must send text and binary back as
they were, refuse compression and answer a close. In a climb of a second, no message may be lost or wrong.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from league_plans import ECHO, SHORT, plan
from league_servers import ROOT, LeagueError, Server
from websockets.sync.client import connect

# A server that is not ready after this many seconds is broken; a JVM on a busy machine needs some.
READY_SECONDS = 60.0
STOP_SECONDS = 10.0
CLIMB_SECONDS = 300.0


def check(server: Server, ladder: Path) -> list[str]:
    """What is wrong with a built server; empty when nothing is."""
    mistakes = []
    if server.preset == ECHO:
        with started(server) as port:
            mistakes = conversation(f"ws://127.0.0.1:{port}{server.path}")
    return mistakes + climb(server, ladder)


@contextmanager
def started(server: Server, *, errors: int | None = None) -> Iterator[int]:
    """The server's port while it runs. `errors` is where its standard error goes; without it, to ours."""
    port = free_port()
    filled = [text.replace("{port}", str(port)) for text in server.command]
    environment = os.environ | {key: value.replace("{port}", str(port)) for key, value in server.env.items()}
    try:
        process = subprocess.Popen(filled, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    except OSError as error:
        raise LeagueError(f"{server.name} can't be started ({error}); {how_to_build(server)}") from error
    with process:
        try:
            wait_until_ready(server, process, port)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(server: Server, process: subprocess.Popen[bytes], port: int) -> None:
    """Waits until the port accepts a connection; raises `LeagueError` when the process ends or takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise LeagueError(f"{server.name} doesn't accept connections; {how_to_build(server)}")


def how_to_build(server: Server) -> str:
    return f"build it with: tools/league.py build {server.name}"


def conversation(url: str) -> list[str]:
    """What an echo does wrong with an independent client that offers compression."""
    mistakes = []
    with connect(url, compression="deflate", ping_interval=None) as client:
        if client.protocol.extensions:
            mistakes.append("it accepts compression")
        for sent in ("text ä", b"\x00\x01\xff", "x" * 20_000):
            client.send(sent)
            got = client.recv(timeout=10)
            if got != sent:
                mistakes.append(f"{sent[:10]!r} came back as {got[:10]!r}")
    if client.close_code != 1000:
        mistakes.append(f"a close of 1000 was answered with {client.close_code}")
    return mistakes


def climb(server: Server, ladder: Path) -> list[str]:
    """What a short climb of all its workloads finds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "plan.yaml")
        file.write_text(plan("league-check", server.preset, [server], SHORT))
        command: list[str | Path] = [
            ladder,
            "run",
            file,
            "--no-rest",
            "--no-report",
            "--results",
            Path(folder, "results"),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CLIMB_SECONDS)
        results = sorted(Path(folder, "results").rglob("result.json"))
        if not results:
            return [(done.stderr or done.stdout).strip()]
        return [mistake for each in results for mistake in wrong_with(each)]


def wrong_with(file: Path) -> list[str]:
    """What is wrong in the result of a trial."""
    name = "/".join(file.parts[-4:-2])
    result: dict[str, Any] = json.loads(file.read_text())
    counts, connections = result["messages"], result["connections"]
    mistakes = []
    if result["validity"]["state"] != "valid":
        mistakes.append(f"{name} is invalid: {result['validity']}")
    if connections["failed"] or connections["closed_early"]:
        mistakes.append(
            f"{name}: connections failed {connections['failed']} or closed early {connections['closed_early']}"
        )
    bad = {key: counts[key] for key in ("wrong", "lost", "duplicates", "dropped") if counts[key]}
    if bad:
        mistakes.append(f"{name}: {bad}")
    if name.startswith(("request-reply", "fanout")) and not counts["delivered"]:
        mistakes.append(f"{name}: nothing was answered or received")
    return mistakes
