"""Speech-to-text: the report of sessions at their own pace."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundles import TrialSpec, bundle
from ws_ladder_analysis.charts import draw
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.ladders import Ladder, ladders, objectives
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.report import write_report
from ws_ladder_analysis.tables import failures, percentiles, tiers

OBJECTIVE = {
    "figure": {"percentile_ms": {"histogram": "newest", "percentile": 95.0}},
    "at_most": 350.0,
    "at_least": None,
}
SESSIONS = TrialSpec(
    service="rust-sync",
    workload="sessions",
    tier=100,
    load={"model": "sessions", "ramp_seconds": 2.0, "spread_ms": 1000.0, "in_flight": 256},
    message={"format": "pcm", "size_bytes": 640, "coalesce": 1},
    witness="reply",
    seconds=10.0,
    due=50_000,
    replies=1_000,
    samples=1_000,
    latencies={
        "newest_ns": (100e6, 0.1),
        "oldest_ns": (1_080e6, 0.01),
        "flush_lateness_ns": (2e6, 0.3),
        "delay_ns": (2e5, 0.3),
    },
    service_share=0.1,
    bound_by=None,
    objectives=(OBJECTIVE,),
)


def ladder(folder: Path, *specs: TrialSpec) -> Ladder:
    """The only ladder of a bundle with these trials."""
    (found,) = ladders(read_bundle(bundle(folder, list(specs))))
    return found


def row(one: Ladder, place: int = 0) -> dict[str, str]:
    """A row of the tier table, keyed by column title."""
    table = tiers(one)
    return {column.title: cell.text for column, cell in zip(table.columns, table.rows[place], strict=True)}


def test_a_tier_counts_sessions_and_shows_what_their_objective_is_about(tmp_path: Path) -> None:
    found = row(ladder(tmp_path, SESSIONS))
    assert found["sessions"] == "100"
    assert found["p50 newest"].startswith("1")
    assert found["p50 newest"].endswith("ms")
    assert found["p95 oldest"].endswith("s")
    assert found["p95 flush lateness"].endswith("ms")
    # 0.1 CPU over 100 sessions is 1 ms per session and second.
    assert found["service CPU per session"] == "1.00\u00a0ms/s"
    assert found["errors per 100k replies"] == "0"
    assert found["inference CPU"] == "10\u00a0%"
    assert "written/s" not in found
    assert "p99 handshake" not in found


def test_errors_are_counted_for_each_hundred_thousand_replies(tmp_path: Path) -> None:
    found = row(ladder(tmp_path, replace(SESSIONS, failures=({"inference_request/timeout": 2}, {}))))
    assert found["errors per 100k replies"] == "200"


def test_failures_are_listed_by_kind_in_the_window_and_outside_it(tmp_path: Path) -> None:
    one = replace(SESSIONS, failures=({"inference_request/timeout": 2}, {"session/closed": 1}))
    table = failures(ladder(tmp_path, one))
    assert table is not None
    assert [[cell.text for cell in cells] for cells in table.rows] == [
        ["100", "inference_request/timeout", "2", "0"],
        ["100", "session/closed", "0", "1"],
    ]


def test_without_failures_there_is_no_table_of_them(tmp_path: Path) -> None:
    assert failures(ladder(tmp_path, SESSIONS)) is None


def test_the_bounds_of_the_objective_are_in_the_chart(tmp_path: Path) -> None:
    found = read_bundle(bundle(tmp_path, [SESSIONS, replace(SESSIONS, tier=200)]))
    one = ladders(found)
    judged = objectives(found.run.plan, "sessions", "standard")
    charts = {chart.name: chart for chart in draw(one, every_distribution=False, judged=judged)}
    newest = charts["sessions-standard-rust-sync-newest"]
    assert "The objective asks for p95 ≤ 350 ms." in newest.description
    assert {"p95 ≤ 350", "sessions", "milliseconds"} <= set(re.findall(r"<text[^>]*>([^<]+)</text>", newest.svg))
    assert "sessions-standard-cpu" in charts
    assert "sessions-standard-rust-sync-handshake" not in charts


def test_a_report_leaves_no_chart_of_an_earlier_one(tmp_path: Path) -> None:
    folder = bundle(tmp_path, [SESSIONS])
    (folder / "report").mkdir(exist_ok=True)
    (folder / "report" / "old.png").write_bytes(b"")
    page, report = write_report(folder)
    assert not (page.parent / "old.png").exists()
    assert not report.checked.disagreements
    assert "rust-sync" in page.read_text()
    assert "1 session" not in page.read_text()


LATE = replace(
    SESSIONS,
    latencies=SESSIONS.latencies | {"frame_ns": (500e6, 0.3)},
    objectives=(
        {"figure": {"percentile_ms": {"histogram": "oldest", "percentile": 95.0}}, "at_most": 1650.0, "at_least": None},
    ),
)


def with_unanswered(folder: Path, unanswered: int, **figures: float) -> Path:
    """The bundle of a trial that lacks answers to as many frames, and claims these figures."""
    written = bundle(folder, [LATE])
    (result,) = written.rglob("result.json")
    for path in (result, *written.rglob("workers/0.json")):
        content = json.loads(path.read_text())
        content["histograms"]["frame_ns"]["overflow"] = unanswered
        if path == result:
            content["figures"] |= figures
            del content["percentiles"]["frame_ns"]
        path.write_text(json.dumps(content))
    return written


def test_frames_without_an_answer_rank_above_all_others(tmp_path: Path) -> None:
    (one,) = ladders(read_bundle(with_unanswered(tmp_path, 500, late_share=1 / 3, answers_per_session_second=1.0)))
    found = row(one)
    assert found["late"] == "33\u00a0%"
    assert found["answers per session·s"] == "1.00"
    table = percentiles(one)
    assert table is not None
    titles = [column.title for column in table.columns]
    (cells,) = [cells for cells in table.rows if cells[1].text == "frame"]
    assert cells[titles.index("p50")].text.endswith("ms")
    assert cells[titles.index("p95")].text.startswith(">")
    assert cells[titles.index("samples")].detail == "500 without an end"


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"late_share": 1 / 3, "answers_per_session_second": 250.0}, []),
        ({"late_share": 0.0, "answers_per_session_second": 250.0}, ["late_share is 0 but the histogram says 0.333333"]),
        (
            {"late_share": 1 / 3, "answers_per_session_second": 2.0},
            ["answers_per_session_second is 2 but counted 250"],
        ),
    ],
)
def test_what_sessions_lack_is_recomputed(tmp_path: Path, figures: dict[str, float], found: list[str]) -> None:
    checked = check(read_bundle(with_unanswered(tmp_path, 500, **figures)))
    assert [one.description for one in checked.disagreements] == found
