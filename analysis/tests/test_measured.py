"""A run that measured two sides in pairs until it was decided: its table, and its pairs decided a second time."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
from bench_format.schemas import ComparedFigure

from tests.bundles import Json, TrialSpec, bundle, edit
from ws_ladder_analysis.__main__ import main
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.measured import figure_of, table
from ws_ladder_analysis.report import write_report
from ws_ladder_analysis.sequential import Verdict, decide

NOISE = (1.0, 1.002, 0.997, 1.001, 0.999, 1.003)


def side(service: str, source: Json) -> Json:
    return {"service": service, "registered": "gateway", "source": source, "commit": "0123456789abcdef"}


def measured(folder: Path, speed: float, changes: Json | None = None) -> Path:
    """A bundle of as many pairs as there is noise, with what they show; side B has `speed` times A's rate."""
    specs = [
        TrialSpec(service=service, process=process, due=round(20_000 * noise * factor))
        for process, noise in enumerate(NOISE, 1)
        for service, factor in (("gateway-a", 1.0), ("gateway-b", speed / noise))
    ]
    root = bundle(folder, specs, id="r")
    rates = {
        service: [
            next(
                trial.result.figures.delivered_per_second or 0.0
                for trial in read_bundle(root).trials
                if trial.result and (trial.id.service, trial.id.process) == (service, process)
            )
            for process in range(1, len(NOISE) + 1)
        ]
        for service in ("gateway-a", "gateway-b")
    }
    a, b = ([math.log(rate) for rate in rates[one]] for one in ("gateway-a", "gateway-b"))
    found = decide([one - other for one, other in zip(a, b, strict=True)])
    names = {Verdict.DIFFERS: "differs", Verdict.SAME: "same", Verdict.UNDECIDED: "undecided"}
    figure: Json = {
        "figure": "delivered-per-second",
        "pairs": len(NOISE),
        "a": math.exp(sum(a) / len(a)),
        "b": math.exp(sum(b) / len(b)),
        "ratio": found.ratio,
        "interval": {"low": found.low, "high": found.high},
        "verdict": names[found.verdict],
        "pairs_needed": None,
    }
    trial = read_bundle(root).trials[0].id
    comparison: Json = {
        "a": side("gateway-a", {"kind": "registry"}),
        "b": side("gateway-b", {"kind": "commit", "revision": "HEAD~1"}),
        "workload": trial.workload,
        "variant": trial.variant,
        "tier": trial.tier,
        "pairs_at_most": 60,
        "asked": ["delivered-per-second"],
        "progress": {
            "figures": ["delivered-per-second"],
            "looks": [{"pair": pair, "figures": [figure | (changes or {})]} for pair in range(1, len(NOISE) + 1)],
            "dropped": [],
            "end": {"end": "decided"},
        },
    }
    edit(root / "run.json", partial(dict.update, comparison=comparison))
    return root


def disagreements(root: Path) -> list[str]:
    return [one.description for one in check(read_bundle(root)).disagreements if one.where == "comparison"]


def test_every_figure_of_a_comparison_can_be_read_and_printed() -> None:
    assert [figure_of(figure).name for figure in ComparedFigure][-2:] == [
        "CPU per million messages",
        "memory per connection",
    ]


@pytest.mark.parametrize(("speed", "shown"), [(0.8, "differs: A is better"), (1.25, "differs: B is better")])
def test_the_table_says_which_side_is_better(tmp_path: Path, speed: float, shown: str) -> None:
    comparison = read_bundle(measured(tmp_path, speed)).run.comparison
    assert comparison is not None
    found = table(comparison)
    assert "gateway (commit 0123456789ab)" in found.caption
    assert "gateway of HEAD~1" in found.caption
    (row,) = found.rows
    assert [cell.text for cell in (row[0], row[5], row[6])] == ["delivered per second", "6", shown]
    assert "at 95" in found.notes[0]


def test_the_pairs_are_decided_a_second_time(tmp_path: Path) -> None:
    assert disagreements(measured(tmp_path / "true", 0.8)) == []
    assert disagreements(measured(tmp_path / "same", 1.0)) == []
    for name, change in {"verdict": "same", "ratio": 1.2, "a": 1.0, "interval": None, "pairs": 5}.items():
        changed = measured(tmp_path / name, 0.8, {name: change})
        assert len(disagreements(changed)) == 1, name


def test_the_report_has_the_comparison_and_no_intervals_for_a_fixed_number(tmp_path: Path) -> None:
    page, report = write_report(measured(tmp_path, 0.8))
    assert report.measured is not None
    assert all(section.comparison is None for section in report.sections)
    assert "differs: A is better" in page.read_text()
    assert "differs: A is better" in (page.parent / "report.md").read_text()


def test_its_services_are_not_compared_as_if_the_number_of_pairs_were_fixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(measured(tmp_path, 0.8))]) == 2
    assert "measured until they decided" in capsys.readouterr().err
