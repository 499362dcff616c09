"""The types of published figures: the document, the client, and what was counted. `seeds.py` has the figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

# One figure, or a mapping of several.
F = TypeVar("F")


@dataclass(frozen=True)
class Document:
    """A published page of results."""

    name: str
    title: str
    tested: str
    # The version that the page names, and the version that its figures are of according to its repository's history.
    named: str
    really: str


class Count(StrEnum):
    """What a figure counts. Only figures that count the same thing are comparable."""

    # Messages.
    DELIVERED = "what the application got"
    RECEIVED = "what the service read and no application saw"
    WRITTEN = "what a client wrote"
    BUFFERED = "what a client put into its buffers"
    PARSED = "every message that a client parsed, a backlog from before the window with them"
    NUMBERED = "published messages that a receiver got, by their numbers"
    # Connections.
    OPENED = "connections that were reported ready and sent their first message"
    LASTED = "connections that stayed open, with every ping accounted for"
    UNBROKEN = "connections that were not observed to end"
    CONFIGURED = "connections opened, up to a limit that was set"
    # Times.
    ROUND_TRIP = "a closed loop's round trip"
    # Memory.
    GROWTH = "what an open connection adds to the service's resident memory"
    RESIDENT = "all resident memory under a load, divided by the connections"
    STATED = "a number of which nobody says how it was found"


@dataclass(frozen=True)
class Source:
    """The source of published figures: document, version, client, and what was counted."""

    document: Document
    part: str
    # The version that these figures are of.
    version: str
    # The program of ours that offers the same load, and the number of its processes; `None`: any.
    program: str | None
    processes: int | None
    counted: Count
    # What the server did with what was counted, in a few words.
    fate: str = ""
    # Limitations to print below the table, as sentences.
    caveats: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Document, part and version as one short text."""
        return f"{self.document.name}, {self.part}; version {self.version}"


@dataclass(frozen=True)
class Series(Generic[F]):
    """Published figures, keyed by number of connections."""

    source: Source
    figures: dict[int, F]


@dataclass(frozen=True)
class Rates(Series[float]):
    """Messages or connections per second."""

    # Cores that the client's processes could use.
    cores: int
    # Message format and size; they apply to floods only.
    format: str = "json"
    size_bytes: int = 175


@dataclass(frozen=True)
class Percentiles(Series[dict[float, float]]):
    """Latency in milliseconds, keyed by percentile (0 to 100)."""


@dataclass(frozen=True)
class Held(Series[float]):
    """The share (0 to 1) of connections that stayed open for `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Most(Series[str]):
    """What prevented more connections; the key is the highest number that was open at once."""


@dataclass(frozen=True)
class Memory(Series[float]):
    """Memory per connection in bytes."""

    # The total as it was published.
    total: str


@dataclass(frozen=True)
class PublishedClient:
    """A row of the published table of clients. Rates are per second; `None` where no figure was published."""

    client: str
    processes: int
    # Cores that the client's processes could use.
    cores: int
    json: float | None
    binary: float | None
    accepted: float | None
    connections: int | None
    # What the published rates counted, as read in the client's code.
    counted: str
