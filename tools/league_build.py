"""Builds servers of the league, each with its toolchain.

One that can't be had is left out with its reason, which is kept for docs/LEAGUE.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import service_tasks
from league_servers import ROOT

# Why servers were left out at the last build, by name.
LEFT_OUT = ROOT / "target/league/left-out.json"
PYTHON = "3.12"
# Toolchains that are programs of tools/toolchains; the others are built from files in the server's folder.
PROGRAMS = ("elixir", "extension", "go", "jdk", "rust")


class Buildable(Protocol):
    """A server or a load generator, as far as building it reads it."""

    @property
    def name(self) -> str: ...

    @property
    def toolchain(self) -> str: ...

    @property
    def build(self) -> str: ...

    @property
    def packages(self) -> tuple[str, ...]: ...

    @property
    def folder(self) -> Path: ...

    @property
    def tools(self) -> str: ...


class NotHadError(Exception):
    """A server can't be built on this machine; the message is the reason."""


def build(servers: Sequence[Buildable]) -> dict[str, str]:
    """Builds servers one after the other and returns those that were left out, each with the reason."""
    reasons = {}
    for server in servers:
        print(f"{server.name}: build", file=sys.stderr, flush=True)
        try:
            build_one(server)
        except NotHadError as error:
            reasons[server.name] = str(error)
            print(f"left out: {server.name}: {error}", file=sys.stderr)
    remember(reasons, [server.name for server in servers])
    return reasons


def build_one(server: Buildable) -> None:
    """Builds a server; raises `NotHadError` where that fails."""
    environment = dict(os.environ)
    if server.packages:
        extract(server)
    match server.toolchain:
        case "node":
            run([ROOT / "tools/node-env", server.folder.relative_to(ROOT)], environment)
        case "python":
            lock = server.folder.relative_to(ROOT) / "requirements.txt"
            run([ROOT / "tools/python-env", server.tools, PYTHON, lock], environment)
        case name if name in PROGRAMS:
            environment = toolchain(name)
    if server.build:
        run(["bash", "-euo", "pipefail", "-c", server.build], environment, server.folder)


def extract(server: Buildable) -> None:
    """Extracts the server's Debian packages, unless they are there."""
    if not (ROOT / server.tools / "packages").is_file():
        run([ROOT / "tools/debian-files", server.tools, *server.packages], dict(os.environ))


def toolchain(name: str) -> dict[str, str]:
    """The environment of a toolchain's commands."""
    try:
        return service_tasks.environment(name)
    except service_tasks.NotHereError as error:
        raise NotHadError(str(error)) from error
    except SystemExit as error:
        raise NotHadError(str(error.code)) from error


def run(command: list[str | Path], environment: dict[str, str], folder: Path = ROOT) -> None:
    """Runs a command; raises `NotHadError` with the last line that it printed where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
    sys.stderr.write(done.stderr)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotHadError(lines[-1].strip() if lines else f"its build failed with exit code {done.returncode}")


def remember(reasons: dict[str, str], tried: list[str]) -> None:
    """Writes the reasons of this build beside those of servers that it didn't try."""
    kept = {name: reason for name, reason in left_out().items() if name not in tried}
    LEFT_OUT.parent.mkdir(parents=True, exist_ok=True)
    LEFT_OUT.write_text(json.dumps(kept | reasons, indent=2, sort_keys=True) + "\n")


def left_out() -> dict[str, str]:
    """Why servers were left out, by name; empty before the first build."""
    if not LEFT_OUT.is_file():
        return {}
    found: dict[str, str] = json.loads(LEFT_OUT.read_text())
    return found
