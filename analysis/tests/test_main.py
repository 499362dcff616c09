"""The command line: output and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundles import TrialSpec, bundle, edit
from ws_ladder_analysis.__main__ import main

SPEC = TrialSpec(due=1_000)


def test_it_writes_into_the_bundle_and_prints_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = bundle(tmp_path, [SPEC])
    assert main([str(root)]) == 0
    assert capsys.readouterr().out == f"{root / 'report' / 'report.html'}\n"
    assert (root / "report/report.html").is_file()


def test_it_writes_to_the_configured_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = bundle(tmp_path, [SPEC])
    assert main([str(root), "--output", str(tmp_path / "there" / "deep")]) == 0
    assert (tmp_path / "there/deep/report.html").is_file()
    assert not (root / "report").exists()
    assert capsys.readouterr().err == ""


def test_a_broken_bundle_is_one_line_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"failed to report: {tmp_path} is not a bundle")
    assert error.count("\n") == 1


def test_disagreements_are_printed_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = bundle(tmp_path, [SPEC])
    edit(root / "trials" / SPEC.folder / "result.json", lambda result: result["messages"].update(delivered=1))
    assert main([str(root)]) == 0
    assert (
        "the files disagree: wse-server/throughput/standard/100-p1-r1: 1000 messages were due"
        in capsys.readouterr().err
    )


def test_it_runs_as_a_module() -> None:
    package = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "ws_ladder_analysis", "--help"]
    completed = subprocess.run(command, cwd=package, capture_output=True, text=True, check=True)
    assert "folder of a run" in completed.stdout


def test_a_command_that_breaks_doesn_t_answer_with_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = bundle(tmp_path, [SPEC])

    def broken(_: Path) -> None:
        raise RuntimeError("a fault of the program")

    monkeypatch.setattr("ws_ladder_analysis.export.read_bundle", broken)
    assert main(["export", str(root), "--format", "bencher"]) == 2
    assert "a fault of the program" in capsys.readouterr().err
