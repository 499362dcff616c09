"""Connections that come and go: what is recomputed of them, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bundles import Json, TrialSpec, bundle, edit
from ws_ladder_analysis import wording
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.turnover import TIMES, reconnected_ms, table

LOAD: Json = {"model": "reconnect", "cut": "reset", "spread_seconds": 0.0, "in_flight": 256}
CUT = TrialSpec(
    workload="reconnect",
    load=LOAD,
    witness="reply",
    failed=4,
    workers=1,
    latencies={"handshake_ns": (1e6, 0.5), "reconnected_ns": (2e6, 0.5)},
)


def turnover() -> Json:
    """One hundred attempts, four of which the service refused."""
    return {
        "due": 100,
        "ready": 96,
        "refused": {"http_503": 4},
        "failed": {},
        "not_made": 0,
        "closed": 90,
        "unanswered_closes": 0,
        "unanswered_messages": 0,
        "open_at_end": 6,
    }


def written(folder: Path, change: Callable[[Json], object] = lambda _: None) -> Path:
    """A bundle of one trial whose connections were cut; the change is made to its result."""
    root = bundle(folder, [CUT])
    (trial,) = read_bundle(root).trials
    times = {name: reconnected_ms(trial, percent) for percent, name in TIMES.items()}
    edit(root / "trials" / CUT.folder / "workers/0.json", lambda worker: worker.update(turnover=turnover()))

    def complete(result: Json) -> None:
        result["turnover"] = turnover()
        result["figures"] |= times
        result["bound_by"] = "service"
        change(result)

    edit(root / "trials" / CUT.folder / "result.json", complete)
    return root


def found(folder: Path) -> list[str]:
    return [one.description for one in check(read_bundle(folder)).disagreements]


def test_a_trial_whose_connections_were_cut_agrees_with_itself(tmp_path: Path) -> None:
    assert found(written(tmp_path)) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda result: result["turnover"].update(ready=97), "100 attempts were due but 101 have an outcome"),
        (lambda result: result["turnover"].update(closed=91), "96 connections were open but 97 went"),
        (lambda result: result["figures"].update(reconnected_all_ms=1.0), "reconnected_all_ms is 1.0 but"),
        (lambda result: result.pop("turnover"), "workers report connections that come and go"),
    ],
    ids=["attempts", "connections", "times", "missing"],
)
def test_what_does_not_add_up_is_found(tmp_path: Path, change: Callable[[Json], object], expected: str) -> None:
    assert any(one.startswith(expected) for one in found(written(tmp_path, change)))


def test_a_time_that_too_few_reached_is_absent(tmp_path: Path) -> None:
    root = written(tmp_path)
    file = root / "trials" / CUT.folder / "result.json"
    content = json.loads(file.read_text())
    content["histograms"]["reconnected_ns"]["overflow"] = 10
    file.write_text(json.dumps(content))
    (trial,) = read_bundle(root).trials
    known = [reconnected_ms(trial, percent) is not None for percent in TIMES]
    assert known == [True, True, False, False]


def test_the_report_shows_attempts_with_their_reasons_and_the_times(tmp_path: Path) -> None:
    (ladder,) = ladders(read_bundle(written(tmp_path)))
    shown = table(ladder)
    assert shown is not None
    cells = dict(zip((column.title for column in shown.columns), shown.rows[0], strict=True))
    assert (cells["refused"].text, cells["refused"].detail) == ("4", "4 http_503")
    assert cells["attempts due"].text == "100"
    assert cells["time until all of the connections were back"].text.endswith("ms")


def test_loads_and_objectives_are_described_in_words(tmp_path: Path) -> None:
    (trial,) = read_bundle(written(tmp_path)).trials
    assert trial.result is not None
    described = wording.plain(wording.load(trial.result.load))
    assert described == "closed, all connections are cut by reset and connect again at once"
    assert wording.plain(wording.reconnected(99)) == "time until 99 % of the connections were back"
