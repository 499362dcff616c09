"""The contract table shows what was checked, the results, and the declared exceptions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench_format.schemas import SCHEMA, CaseStatus, ContractCase, ContractCheck, ContractFile, ContractOutcome

from tests.bundles import TrialSpec, bundle
from ws_ladder_analysis.cells import Tone
from ws_ladder_analysis.contract import contract
from ws_ladder_analysis.load import BundleError, read_bundle
from ws_ladder_analysis.report import write_report

PASSED = ContractCheck(
    at="2026-11-25T02:00:00Z",
    outcome=ContractOutcome.PASSED,
    cases=[ContractCase(name=name, status=CaseStatus.PASSED) for name in ("ready", "batches")],
)
FAILED = replace(
    PASSED,
    outcome=ContractOutcome.FAILED,
    cases=[PASSED.cases[0], ContractCase(name="batches", status=CaseStatus.FAILED, expected="all", seen="some")],
)
FILE = ContractFile(schema=SCHEMA, service="a", program="stt-conformance", level="core", before=PASSED, after=PASSED)


def cells(file: ContractFile) -> list[tuple[str, str, Tone]]:
    """Text, detail and tone of each cell in a service's row."""
    table = contract([file])
    assert table is not None
    return [(cell.text, cell.detail, cell.tone) for cell in table.rows[0]]


def test_without_files_there_is_no_table() -> None:
    assert contract([]) is None


def test_a_service_that_kept_its_contract_passed_both_times() -> None:
    passed = ("passed", "2 cases", Tone.GOOD)
    assert cells(FILE) == [("a", "", Tone.PLAIN), ("core", "", Tone.PLAIN), passed, passed, ("none", "", Tone.PLAIN)]


def test_a_broken_contract_names_its_cases_and_an_unchecked_one_its_reason() -> None:
    unknown = replace(PASSED, outcome=ContractOutcome.NOT_CHECKED, problem="no ready line", cases=[])
    row = cells(replace(FILE, before=FAILED, after=unknown))
    assert row[2:4] == [("failed", "batches", Tone.BAD), ("could not be checked", "no ready line", Tone.BAD)]


def test_unchecked_and_skipped_cases_are_distinguished() -> None:
    assert cells(replace(FILE, after=None))[3][0] == "—"
    left_out = cells(replace(FILE, before=None, after=None, left_out="--no-conformance"))
    assert left_out[2] == left_out[3] == ("left out", "--no-conformance", Tone.WARN)


def test_exceptions_are_listed_with_the_actual_behaviour() -> None:
    row = cells(replace(FILE, exceptions={"unmasked": "it ends", "reserved": "it says 1000"}))
    assert row[4][0] == "reserved: it says 1000; unmasked: it ends"


def test_the_report_of_a_bundle_has_the_table(tmp_path: Path) -> None:
    folder = bundle(tmp_path, [TrialSpec()])
    here = folder / "conformance"
    here.mkdir()
    case = {"name": "ready", "status": "passed", "expected": "it is taken", "seen": "it is"}
    check = {"at": "2026-11-25T02:00:00Z", "outcome": "passed", "cases": [case]}
    file = {"schema": SCHEMA, "service": "a", "program": "p", "level": "core", "before": check}
    (here / "a.json").write_text(json.dumps(file), encoding="utf-8")
    assert [one.service for one in read_bundle(folder).contracts] == ["a"]
    page = write_report(folder)[0].with_name("report.md").read_text(encoding="utf-8")
    assert "**Contract**" in page
    assert "| a | core | passed (1 case) | — | none |" in page


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    folder = bundle(tmp_path, [TrialSpec()])
    (folder / "conformance").mkdir()
    (folder / "conformance/a.json").write_text("{", encoding="utf-8")
    with pytest.raises(BundleError, match=r"conformance/a\.json is broken"):
        read_bundle(folder)
