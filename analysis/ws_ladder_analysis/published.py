"""What a published figure is: where it stands, whose it is, what it really counted. `seeds.py` has the figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

# A figure, or several.
F = TypeVar("F")


@dataclass(frozen=True)
class Document:
    """A published page."""

    name: str
    title: str
    tested: str
    # The version that it names, and what its figures are of by the history of the repository that holds it.
    named: str
    really: str


class Count(StrEnum):
    """What a figure counts: only figures that count the same say anything about each other."""

    # Messages.
    DELIVERED = "what the application got"
    RECEIVED = "what the service read and no application saw"
    WRITTEN = "what a client wrote"
    BUFFERED = "what a client put into its buffers"
    PARSED = "every message that a client parsed, a backlog from before the window with them"
    NUMBERED = "published messages that a receiver got, by their numbers"
    # Connections.
    OPENED = "connections that were told ready and sent their greeting"
    LASTED = "connections that stayed open, with every ping accounted for"
    UNBROKEN = "connections that were not seen to end"
    CONFIGURED = "connections opened, up to a limit that was set"
    # Times.
    ROUND_TRIP = "a closed loop's round trip"
    # Memory.
    GROWTH = "what an open connection adds to the service's resident memory"
    RESIDENT = "all resident memory under a load, divided by the connections"
    STATED = "a number of which nobody says how it was found"


@dataclass(frozen=True)
class Source:
    """Where figures stand, who made them, and what they counted."""

    document: Document
    part: str
    # The version that these figures are of.
    version: str
    # Our program that offers the same, and the number of its processes; `None`: any.
    program: str | None
    processes: int | None
    counted: Count
    # What became of what was counted, in a few words.
    fate: str = ""
    # What else has to be known, in sentences.
    caveats: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Document, part and version, in short."""
        return f"{self.document.name}, {self.part}; version {self.version}"


@dataclass(frozen=True)
class Series(Generic[F]):
    """Figures by number of connections."""

    source: Source
    figures: dict[int, F]


@dataclass(frozen=True)
class Rates(Series[float]):
    """Things per second."""

    # Cores that the client's processes could use.
    cores: int
    # Of floods.
    format: str = "json"
    size_bytes: int = 175


@dataclass(frozen=True)
class Percentiles(Series[dict[float, float]]):
    """Milliseconds by percentile."""


@dataclass(frozen=True)
class Held(Series[float]):
    """The share of connections that lasted so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Most(Series[str]):
    """The most connections that were open at once, and what held more off."""


@dataclass(frozen=True)
class Memory(Series[float]):
    """Bytes for each connection."""

    # The sum as it was published.
    total: str


@dataclass(frozen=True)
class PublishedClient:
    """A row of the published table of clients. Rates per second; nothing where nothing was published."""

    client: str
    processes: int
    # Cores that the client's processes could use.
    cores: int
    json: float | None
    binary: float | None
    accepted: float | None
    connections: int | None
    # What was really counted.
    counted: str
