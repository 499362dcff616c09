"""The tables of a report that show the results of searches: brackets, and bounds for each objective."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench_format.schemas import CpuShape, Run

from tests.bundles import TrialSpec, bundle
from tests.bundles.histograms import Json
from tests.test_sessions import OBJECTIVE, SESSIONS
from ws_ladder_analysis.brackets import bounds, brackets
from ws_ladder_analysis.cells import Table
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.report import write_report

FOUND: Json = {
    "goals": [{"objective": OBJECTIVE, "lower": 620, "upper": 640, "conditional_throughput": 612.4}],
    "conditional_throughput": 612.4,
    "confirmed": 600,
    "borderline": [620],
    "first_solid_fail": 640,
    "at_least": False,
    "gates": [OBJECTIVE],
    "edge": "latency",
    "bound_by": "service",
    "generator_limit": None,
    "given_up_at": None,
}


def run(folder: Path, found: Json | None, cpus: float = 0.1) -> Run:
    """A run with one search, whose result is `found` (`None`: not finished), and a service limited to `cpus` CPUs."""
    search = {"service": "rust-sync", "workload": "sessions", "variant": "standard", "found": found}
    made = read_bundle(bundle(folder, [SESSIONS], searches=[search])).run
    return replace(made, plan=replace(made.plan, cpu=replace(made.plan.cpu, service=CpuShape(cpus))))


def cells(table: Table | None) -> dict[str, str]:
    """The first row, keyed by column title."""
    assert table is not None
    return {column.title: cell.text for column, cell in zip(table.columns, table.rows[0], strict=True)}


def test_a_bracket_names_its_three_loads_and_the_failure(tmp_path: Path) -> None:
    found = cells(brackets(run(tmp_path, FOUND)))
    assert (found["confirmed"], found["borderline"], found["first solid fail"]) == ("600", "620", "640")
    assert (found["what failed"], found["edge"], found["bound by"]) == ("p95 of newest ≤ 350 ms", "latency", "service")


def test_a_share_of_a_cpu_is_never_multiplied(tmp_path: Path) -> None:
    table = brackets(run(tmp_path, FOUND, cpus=0.1))
    assert table is not None
    assert "on 0.1 CPU" in table.caption
    assert not any("whole CPU" in column.title for column in table.columns)


def test_a_bound_that_the_generator_could_not_reach_is_at_least(tmp_path: Path) -> None:
    unbounded = FOUND | {"at_least": True, "first_solid_fail": None, "borderline": [], "generator_limit": 700}
    table = brackets(run(tmp_path, unbounded))
    found = cells(table)
    assert found["confirmed"] == ">=\u00a0600"
    assert found["first solid fail"] == "—"
    assert table is not None
    assert "the generator could not offer 700" in table.notes[0]


def test_a_bracket_names_the_smallest_load_under_which_the_service_ended(tmp_path: Path) -> None:
    table = brackets(run(tmp_path, FOUND | {"crash": {"load": 640, "cause": "service_oom"}}))
    assert table is not None
    assert "rust-sync ended under a load of 640: service_oom." in table.notes


def test_a_search_without_a_result_is_reported_as_not_finished(tmp_path: Path) -> None:
    assert cells(brackets(run(tmp_path, None)))["confirmed"] == "not finished"
    assert bounds(run(tmp_path / "again", None)) is None


def test_each_objective_has_its_bounds(tmp_path: Path) -> None:
    found = cells(bounds(run(tmp_path, FOUND)))
    assert (found["largest load that meets it"], found["smallest that doesn't"]) == ("620", "640")


def test_the_report_of_a_search_shows_its_bracket_and_other_reports_show_none(tmp_path: Path) -> None:
    search = {"service": "rust-sync", "workload": "sessions", "variant": "standard", "found": FOUND}
    specs: list[TrialSpec] = [SESSIONS]
    with_search, _ = write_report(bundle(tmp_path / "search", specs, searches=[search]))
    without, _ = write_report(bundle(tmp_path / "tiers", specs))
    assert "first solid fail" in with_search.read_text()
    assert "first solid fail" not in without.read_text()
