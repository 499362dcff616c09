"""Aligns columns of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """One line for each row, columns two spaces apart; the last column may be of any length."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
