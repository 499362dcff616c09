"""The table that says whether services met their contract before their trials and after them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench_format.schemas import CaseStatus, ContractCheck, ContractFile, ContractOutcome

from . import wording
from .cells import NONE, Cell, Column, Table, Tone


def contract(files: Sequence[ContractFile]) -> Table | None:
    """One row per service; `None` when no service has a contract that can be checked."""
    if not files:
        return None
    titles = ("service", "level", "before its first trial", "after its last", "exceptions, and what it does instead")
    rows = tuple(
        (Cell(one.service), Cell(one.level), _check(one, one.before), _check(one, one.after), _exceptions(one))
        for one in files
    )
    return Table("Contract", tuple(Column(title, number=False) for title in titles), rows)


def _check(file: ContractFile, check: ContractCheck | None) -> Cell:
    if file.left_out is not None:
        return Cell("left out", file.left_out, Tone.WARN)
    if check is None:
        return NONE
    if check.outcome is ContractOutcome.PASSED:
        return Cell("passed", _count(len(check.cases)), Tone.GOOD)
    if check.outcome is ContractOutcome.FAILED:
        failed = (one.name for one in check.cases if one.status is CaseStatus.FAILED)
        return Cell("failed", ", ".join(failed), Tone.BAD)
    return Cell("could not be checked", check.problem or "", Tone.BAD)


def _count(cases: int) -> str:
    return f"{wording.count(cases)} case" + ("" if cases == 1 else "s")


def _exceptions(file: ContractFile) -> Cell:
    if not file.exceptions:
        return Cell("none")
    return Cell("; ".join(f"{case}: {instead}" for case, instead in sorted(file.exceptions.items())))
