"""What a check of a trial claims, and how it compares two figures."""

from __future__ import annotations

from collections.abc import Iterator

from . import wording

# Each check yields pairs: the text of the disagreement, and whether the check holds.
Claims = Iterator[tuple[str, bool]]


def close(claimed: float | None, recomputed: float | None, tolerance: float) -> bool:
    """Whether two figures differ by at most this share of the larger one; two missing figures agree."""
    if claimed is None or recomputed is None:
        return claimed is None and recomputed is None
    return abs(claimed - recomputed) <= tolerance * max(abs(claimed), abs(recomputed), 1e-9)


def value_text(value_ns: int | None) -> str:
    """Formats a value of a histogram, in nanoseconds; `n/a` for a missing one."""
    return wording.NOT_AVAILABLE if value_ns is None else f"{value_ns} ns"
