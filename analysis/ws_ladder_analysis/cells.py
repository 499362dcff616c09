"""The parts of a table before it is rendered. Texts only: no markup here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .wording import NOT_AVAILABLE


class Tone(StrEnum):
    """How a cell is highlighted. The text must carry the same information without it."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    MUTED = "muted"


@dataclass(frozen=True)
class Cell:
    """One cell: its text, a smaller second line (`detail`) and its tone."""

    text: str
    detail: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Column:
    """The head of a column; columns of numbers are right-aligned."""

    title: str
    number: bool = True


@dataclass(frozen=True)
class Table:
    """A table with its caption. The first cell of each row is the row's head."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = field(default=())


# NOTHING: the figure is missing. NONE: the row has no such figure by design.
NOTHING = Cell(NOT_AVAILABLE, tone=Tone.MUTED)
NONE = Cell("—", tone=Tone.MUTED)
