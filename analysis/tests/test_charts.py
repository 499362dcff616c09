"""Which charts are drawn, and that they can be embedded in a page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bench_format.histogram import Values

from tests.bundles import TrialSpec, bundle
from ws_ladder_analysis.charts import _curve, draw
from ws_ladder_analysis.drawing import Chart
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import read_bundle

FLOOD = TrialSpec(latencies={"response_ns": (1e6, 0.5), "delay_ns": (3e4, 0.5)}, due=10_000)


def charts(folder: Path, *specs: TrialSpec) -> dict[str, Chart]:
    """The charts of a bundle with one workload, keyed by the last part of their names."""
    drawn = draw(ladders(read_bundle(bundle(folder, list(specs)))), every_distribution=True)
    return {chart.name.removeprefix("throughput-standard-"): chart for chart in drawn}


def text(chart: Chart) -> set[str]:
    """The texts of a chart's SVG."""
    return set(re.findall(r"<text[^>]*>([^<]+)</text>", chart.svg))


def test_a_ladder_of_two_tiers_has_every_chart(tmp_path: Path) -> None:
    found = charts(tmp_path, FLOOD, replace(FLOOD, tier=200))
    assert set(found) == {
        "wse-server-outcomes",
        "wse-server-response",
        "wse-server-cpu",
        "memory",
        "wse-server-distribution-100",
        "wse-server-distribution-200",
    }


def test_a_single_tier_has_no_course_of_latency(tmp_path: Path) -> None:
    assert "wse-server-response" not in charts(tmp_path, FLOOD)


def test_written_delivered_and_dropped_are_side_by_side(tmp_path: Path) -> None:
    found = text(charts(tmp_path, FLOOD)["wse-server-outcomes"])
    assert {"written", "delivered", "dropped", "connections", "messages per second"} <= found


def test_without_a_witness_nothing_is_drawn_as_delivered(tmp_path: Path) -> None:
    found = text(charts(tmp_path, replace(FLOOD, witness="none"))["wse-server-outcomes"])
    assert "written" in found
    assert "delivered" not in found


def test_the_curves_overlay_on_an_axis_of_nines(tmp_path: Path) -> None:
    chart = charts(tmp_path, FLOOD)["wse-server-distribution-100"]
    assert {"response", "delay", "0 %", "90 %", "99 %", "99.9 %"} <= text(chart)
    # The part without enough samples is dotted.
    assert "stroke-dasharray" in chart.svg


def test_invalid_trials_are_in_no_chart(tmp_path: Path) -> None:
    assert charts(tmp_path, replace(FLOOD, reasons=(("start_skew", "90 ms apart"),))) == {}


def test_memory_that_shrank_is_drawn_below_the_line(tmp_path: Path) -> None:
    found = charts(tmp_path, FLOOD, replace(FLOOD, tier=200, bytes_per_connection=-2_048.0))
    assert "−2" in text(found["memory"])


def test_an_svg_brings_no_address_and_no_id_of_another(tmp_path: Path) -> None:
    found = charts(tmp_path, FLOOD, replace(FLOOD, tier=200))
    ids: list[str] = []
    for chart in found.values():
        assert "xmlns" not in chart.svg
        assert 'viewBox="0 0 340 240"' in chart.svg
        ids += re.findall(r' id="([^"]+)"', chart.svg)
    assert len(ids) == len(set(ids))


def test_a_curve_on_a_logarithmic_axis_has_no_zero() -> None:
    rows = _curve("flush_lateness_ns", Values({0: 50, 2_000_000: 50}))
    assert rows
    assert all(float(str(row["value"])) > 0 for row in rows)
