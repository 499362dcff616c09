"""What a table is made of, before it is rendered. Texts only: no markup here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .wording import NOT_AVAILABLE


class Tone(StrEnum):
    """What a cell says beyond its text; the text alone says it too."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    MUTED = "muted"


@dataclass(frozen=True)
class Cell:
    """One cell: its text, a smaller second line, its tone."""

    text: str
    detail: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Column:
    """A column's head; numbers stand to the right."""

    title: str
    number: bool = True


@dataclass(frozen=True)
class Table:
    """A table with its caption. The first cell of a row is its head."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = field(default=())


# There should be a figure but there is none; and: nobody asked for one.
NOTHING = Cell(NOT_AVAILABLE, tone=Tone.MUTED)
NONE = Cell("—", tone=Tone.MUTED)
