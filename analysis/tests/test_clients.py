"""The table of clients side by side, and the published one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundles import TrialSpec, bundle
from ws_ladder_analysis.__main__ import main
from ws_ladder_analysis.cells import Table
from ws_ladder_analysis.clients import clients, published
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.wording import plain

FLOOD = TrialSpec(due=20_000, bound_by="generator", worker_share=0.97, service_share=0.4, workers=1)
PACKED = replace(FLOOD, workload="format-comparison", variant="msgpack", due=30_000)
PACKED = replace(PACKED, message={"format": "msgpack", "size_bytes": 175, "coalesce": 1})


def row(table: Table, place: int = 0) -> dict[str, str]:
    """A row, keyed by column title."""
    cells = zip(table.columns, table.rows[place], strict=True)
    return {column.title: plain(f"{cell.text} ({cell.detail})" if cell.detail else cell.text) for column, cell in cells}


def table(tmp_path: Path, specs: list[TrialSpec]) -> Table:
    return clients([read_bundle(bundle(tmp_path, specs))])


def test_a_client_is_shown_by_its_best_trial_of_each_kind(tmp_path: Path) -> None:
    slow = replace(FLOOD, tier=500, due=10_000)
    found = row(table(tmp_path, [slow, FLOOD, PACKED]))
    assert found["JSON delivered/s"] == ">= 10.0 k (100 connections)"
    assert found["binary delivered/s"] == ">= 15.0 k (msgpack, 100 connections)"
    assert (found["JSON bound by"], found["most connections"]) == ("generator", "500")


def test_a_figure_that_the_service_bound_is_not_a_lower_bound(tmp_path: Path) -> None:
    found = row(table(tmp_path, [replace(FLOOD, bound_by="service", service_share=0.97, worker_share=0.4)]))
    assert found["JSON delivered/s"].startswith("10.0 k")


def test_a_trial_that_is_invalid_or_has_no_witness_gives_no_figure(tmp_path: Path) -> None:
    invalid = replace(FLOOD, due=90_000, bound_by=None, reasons=(("start_skew", "they started 60 ms apart"),))
    silent = replace(PACKED, witness="none")
    found = row(table(tmp_path, [FLOOD, replace(invalid, tier=500), silent]))
    assert found["JSON delivered/s"].startswith(">= 10.0 k (100")
    assert found["binary delivered/s"] == "n/a"


def test_other_sizes_are_not_compared(tmp_path: Path) -> None:
    short = replace(FLOOD, workload="size-matrix", variant="64-bytes", due=90_000)
    short = replace(short, message={"format": "json", "size_bytes": 64, "coalesce": 1})
    assert row(table(tmp_path, [FLOOD, short]))["JSON delivered/s"].startswith(">= 10.0 k")


def test_published_figures_are_separate_per_core_with_what_they_counted() -> None:
    found = published()
    rust, typescript = row(found), row(found, 2)
    assert (rust["JSON/s"], rust["JSON/s per core"]) == ("14.7 M", "459 k")
    assert (typescript["JSON/s"], typescript["JSON/s per core"]) == ("116 k", "116 k")
    assert all(row(found, place)["what was counted"] for place in range(len(found.rows)))


def test_the_command_prints_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = replace(FLOOD, workers=3)
    roots = [str(bundle(tmp_path / str(place), [one])) for place, one in enumerate((FLOOD, several, FLOOD))]
    assert main(["clients", *roots]) == 0
    printed = capsys.readouterr().out
    # One row for each number of processes over all bundles.
    assert printed.count("| wse-server |") == 2
    assert "(3 processes) | wse-server | >= 10.0 k" in printed
    assert "**As published, for orientation**" in printed
    assert main(["clients", str(tmp_path / "none")]) == 1
    assert "failed to compare:" in capsys.readouterr().err
