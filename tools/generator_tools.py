"""Reads `services/league/generators/*/generator.toml`: load generators of other projects, and our own beside them.

`generator.toml` has what a figure can't be read without: version, licence, where the scenario is documented, and what
the tool's counts and latencies are. Commands run from the root of the checkout.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from league_servers import ROOT, LeagueError, printed_version, read_entry

FOLDER = ROOT / "services/league/generators"
OURS = "ws-bench"
TOOLCHAINS = ("debian", "jdk", "node", "own", "python")
LADDER = Path(os.environ.get("LADDER") or ROOT / "target/release/ladder")
# As long as our own message with its number and its time.
TEXT = "a message of sixty-four bytes that the echo must send back as is"
# Messages of a connection that is stopped before it has sent them all.
ENDLESS = 10_000_000
ENDLESS_SECONDS = 3600


@dataclass(frozen=True)
class Generator:
    """A load generator, as its `generator.toml` describes it."""

    name: str
    title: str
    language: str
    licence: str
    """An SPDX expression."""
    source: str
    """The page of the project's documentation that shows the scenario."""
    open_loop: str
    """What arrives at times that don't depend on the service."""
    latency: str
    """From when to when its latency is."""
    percentiles: str
    counts: str
    """What its number of messages counts."""
    toolchain: str = ""
    unavailable: str = ""
    """Why it isn't measured; it then has neither command nor version."""
    command: tuple[str, ...] = ()
    """From the root of the checkout, with the placeholders of `Load.values`."""
    template: str = ""
    """The scenario, in which `$name` stands for a placeholder and `$pace` for how fast a connection sends."""
    pace: str = ""
    flood: str = ""
    """What `$pace` is where each connection sends as soon as it may."""
    version: str = ""
    """The version in its lock file; empty where `version_command` prints it."""
    version_command: tuple[str, ...] = ()
    build: str = ""
    packages: tuple[str, ...] = ()
    """Debian packages that are extracted into .tools/generators/NAME."""
    env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def tools(self) -> str:
        """Where its environment or its extracted packages are, relative to the checkout."""
        return f".tools/generators/{self.name}"


@dataclass(frozen=True)
class Load:
    """What a generator is to do: connections that send one message after the other."""

    connections: int
    seconds: float
    """How long, if each message is answered at once; without a pause it is stopped instead."""
    pause_seconds: float = 0
    """Between an answer and the next message of a connection, or between two due times of an open loop."""

    @property
    def messages(self) -> int:
        """Messages of each connection."""
        return round(self.seconds / self.pause_seconds) if self.pause_seconds else ENDLESS

    def values(self, port: int, folder: Path) -> dict[str, str]:
        """What the placeholders of commands and scenarios stand for."""
        return {
            "connections": str(self.connections),
            "messages": str(self.messages),
            "pause_seconds": f"{self.pause_seconds:g}",
            "rate": f"{self.connections / self.pause_seconds:g}" if self.pause_seconds else "",
            "seconds": f"{self.seconds if self.pause_seconds else ENDLESS_SECONDS:g}",
            "port": str(port),
            "folder": str(folder),
            "ladder": str(LADDER),
            "text": TEXT,
            "root": str(ROOT / ".tools/generators/tsung/root"),
        }


def load() -> dict[str, Generator]:
    """All generators by name, in alphabetical order. Raises `LeagueError` for a file that is wrong."""
    return {one.name: one for one in map(read, sorted(FOLDER.glob("*/generator.toml")))}


def read(file: Path) -> Generator:
    return read_entry(Generator, file, mistake)


def mistake(generator: Generator, folder: str) -> str:
    """What is wrong with an entry; empty when nothing is."""
    if generator.name != folder:
        return f"the name is {generator.name!r} and must be that of its folder"
    if bool(generator.command) == bool(generator.unavailable):
        return "exactly one of command and unavailable must be there"
    if generator.command and generator.toolchain not in TOOLCHAINS:
        return f"toolchain {generator.toolchain!r} is none of {', '.join(TOOLCHAINS)}"
    if generator.command and bool(generator.version) == bool(generator.version_command):
        return "exactly one of version and version_command must be there: without a version nothing is measured"
    return ""


def choose(names: list[str]) -> list[Generator]:
    """The generators that are named, or all that can be had without names."""
    known = {name: one for name, one in load().items() if not one.unavailable}
    if unknown := [name for name in names if name not in known]:
        raise LeagueError(f"no generator is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())


def version(generator: Generator) -> str:
    """The version that is installed. Raises `LeagueError` where there is none."""
    if generator.version:
        return generator.version
    command = [filled(text, {"ladder": str(LADDER)}) for text in generator.version_command]
    return printed_version(generator.name, command, "build it with: tools/generators.py build").removeprefix("ladder ")


def command(generator: Generator, load: Load, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a generator; its scenario is written into the folder."""
    values = load.values(port, folder)
    if generator.template:
        pace = generator.pace if load.pause_seconds else generator.flood
        scenario = Template((generator.folder / generator.template).read_text())
        text = scenario.substitute(values, pace=Template(pace).substitute(values))
        (folder / generator.template).write_text(text)
    environment = {key: filled(text, values) for key, text in generator.env.items()}
    return [filled(text, values) for text in generator.command], environment


def filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
