"""Reads `services/league/*/league.toml`: the servers of other projects that are measured beside each other.

`league.toml` has what a figure can't be read without: version, licence, and where the set-up is documented. Commands
run from the root of the checkout, as in services/services.toml; `build` runs in the server's folder.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ROOT = Path(__file__).resolve().parent.parent
LEAGUE = ROOT / "services/league"
# Servers that can't be had from the registries that this project uses, each with the reason.
UNAVAILABLE = LEAGUE / "unavailable.toml"
TOOLCHAINS = ("debian", "elixir", "extension", "go", "jdk", "node", "python", "rust")


Entry = TypeVar("Entry", bound="DataclassInstance")


class LeagueError(Exception):
    """A `league.toml` is wrong or a server isn't there; the message names it and says what to do."""


@dataclass(frozen=True)
class Server:
    """A server of the league, as its `league.toml` describes it."""

    name: str
    language: str
    licence: str
    """An SPDX expression."""
    source: str
    """The page of the project's documentation that shows the set-up."""
    toolchain: str
    command: tuple[str, ...]
    """From the root of the checkout; `{port}` stands for the port."""
    preset: str
    path: str
    workloads: tuple[str, ...]
    threads: str
    """What it does with several CPUs."""
    runtime: str = ""
    version: str = ""
    """The version in its lock file; empty where `version_command` prints it."""
    version_command: tuple[str, ...] = ()
    build: str = ""
    packages: tuple[str, ...] = ()
    """Debian packages that are extracted into .tools/league/NAME."""
    env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader of its figures must know."""

    @property
    def folder(self) -> Path:
        return LEAGUE / self.name

    @property
    def tools(self) -> str:
        """Where its environment or its extracted packages are, relative to the checkout."""
        return f".tools/league/{self.name}"


def load(folder: Path = LEAGUE) -> dict[str, Server]:
    """All servers by name, in alphabetical order. Raises `LeagueError` for a file that is wrong."""
    servers = [read(file) for file in sorted(folder.glob("*/league.toml"))]
    return {server.name: server for server in servers}


def read(file: Path) -> Server:
    return read_entry(Server, file, mistake)


def read_entry(kind: type[Entry], file: Path, mistake: Callable[[Entry, str], str]) -> Entry:
    """An entry of this kind from its file. `mistake` says what is wrong with it in a folder of that name; empty when
    nothing is. Raises `LeagueError` for a file that is wrong."""
    table = tomllib.loads(file.read_text())
    known = {each.name for each in fields(kind)}
    if unknown := sorted(table.keys() - known):
        raise LeagueError(f"{file}: unknown key {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    try:
        entry = kind(**values)
    except TypeError as error:
        raise LeagueError(f"{file}: {error}") from error
    if problem := mistake(entry, file.parent.name):
        raise LeagueError(f"{file}: {problem}")
    return entry


def mistake(server: Server, folder: str) -> str:
    """What is wrong with an entry; empty when nothing is."""
    if server.name != folder:
        return f"the name is {server.name!r} and must be that of its folder"
    if server.toolchain not in TOOLCHAINS:
        return f"toolchain {server.toolchain!r} is none of {', '.join(TOOLCHAINS)}"
    if bool(server.version) == bool(server.version_command):
        return "exactly one of version and version_command must be there: without a version nothing is measured"
    if not any("{port}" in text for text in (*server.command, *server.env.values())):
        return "neither command nor env has {port}"
    return ""


def choose(servers: dict[str, Server], names: list[str]) -> list[Server]:
    """The servers that are named, or all of them without names."""
    if unknown := [name for name in names if name not in servers]:
        raise LeagueError(f"no server is called {', '.join(unknown)}; there are {', '.join(servers)}")
    return [servers[name] for name in names] if names else list(servers.values())


def printed_version(name: str, command: Sequence[str], remedy: str) -> str:
    """What a version command prints. Raises `LeagueError` where it fails; `remedy` says how to install the program."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise LeagueError(f"{name} has no version; {remedy}") from error
    return done.stdout.strip()


def unavailable(file: Path = UNAVAILABLE) -> dict[str, str]:
    """Servers that the league lacks, each with the reason."""
    found: dict[str, str] = tomllib.loads(file.read_text())
    return found
