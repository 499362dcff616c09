"""Gateways side by side: at one load, as ratios to one of them, beside the published ratios."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundles import TrialSpec, bundle
from tests.test_sessions import SESSIONS
from ws_ladder_analysis import gateways, seeds_gateways
from ws_ladder_analysis.ladders import Ladder, ladders
from ws_ladder_analysis.load import BundleError, read_bundle

YARDSTICK = seeds_gateways.YARDSTICK
LINES = {YARDSTICK: 700, "go-nethttp": 900, "python-fastapi": 600}


def of(folder: Path, *specs: TrialSpec) -> tuple[Ladder, ...]:
    return ladders(read_bundle(bundle(folder, list(specs))))


def gateway(name: str, share: float, process: int = 1, tier: int = 100) -> TrialSpec:
    """A trial of a gateway that used the given share of a CPU."""
    return replace(SESSIONS, service=name, service_share=share, process=process, tier=tier)


def column(folder: Path, title: str, *specs: TrialSpec) -> dict[str, str]:
    """A column of the only table, keyed by gateway."""
    (table,) = gateways.side_by_side(of(folder, *specs), LINES, {})
    at = [one.title for one in table.columns].index(title)
    return {row[0].text: row[at].text for row in table.rows}


def test_the_cheapest_stands_first_with_its_ratio_to_the_yardstick(tmp_path: Path) -> None:
    found = column(tmp_path, f"relative to {YARDSTICK}", gateway(YARDSTICK, 0.1), gateway("go-nethttp", 0.05))
    assert list(found.items()) == [("go-nethttp", "0.500"), (YARDSTICK, "1")]


def test_a_ratio_has_an_interval_where_there_were_processes_enough(tmp_path: Path) -> None:
    specs = [gateway(name, 0.1, process) for name in (YARDSTICK, "go-nethttp") for process in range(1, 6)]
    (table,) = gateways.side_by_side(of(tmp_path, *specs), LINES, {})
    assert [row[2].detail for row in table.rows] == ["", "1.00 to 1.00"]


def test_lines_and_published_figures_are_in_the_same_row(tmp_path: Path) -> None:
    specs = gateway(YARDSTICK, 0.1), gateway("go-nethttp", 0.05)
    assert column(tmp_path, "lines of code", *specs)["go-nethttp"] == "900"
    (table,) = gateways.side_by_side(of(tmp_path / "again", *specs), LINES, {})
    published = table.rows[0][3]
    assert (published.text, published.detail) == ("1.60", "measured")


def test_the_start_up_is_the_median_over_starts(tmp_path: Path) -> None:
    specs = gateway(YARDSTICK, 0.1), gateway("go-nethttp", 0.05)
    (table,) = gateways.side_by_side(of(tmp_path, *specs), LINES, {"go-nethttp": (0.9, 0.1, 0.25)})
    at = [one.title for one in table.columns].index("start-up")
    assert [row[at].text for row in table.rows] == ["250\u00a0ms", "n/a"]


def test_starts_are_read_from_the_timeline_and_half_a_line_at_its_end_is_left_out(tmp_path: Path) -> None:
    folder = bundle(tmp_path, [gateway(YARDSTICK, 0.1)])
    trial = {"service": YARDSTICK, "workload": "sessions", "variant": "a", "tier": 1, "process": 1, "repeat": 1}
    begun = {"step": "start-service", "trial": trial, "start_unix_ns": 1, "end_unix_ns": 500_000_001}
    prepared = {"step": "prepare", "trial": None, "start_unix_ns": 1, "end_unix_ns": 9}
    lines = f"{json.dumps(prepared)}\n{json.dumps(begun)}\n"
    (folder / "timeline.jsonl").write_text(lines + '{"step": "sta')
    assert read_bundle(folder).starts == {YARDSTICK: (0.5,)}
    (folder / "timeline.jsonl").write_text(lines + "nonsense\n")
    with pytest.raises(BundleError, match="line 3"):
        read_bundle(folder)


def test_gateways_are_compared_at_one_load_and_only_where_the_yardstick_was_measured(tmp_path: Path) -> None:
    assert gateways.side_by_side(of(tmp_path, gateway("go-nethttp", 0.1), gateway("rust-sync", 0.1)), LINES, {}) == ()
    apart = gateway(YARDSTICK, 0.1), gateway("go-nethttp", 0.1, tier=500)
    assert gateways.side_by_side(of(tmp_path / "apart", *apart), LINES, {}) == ()


def test_the_same_load_in_two_variants_is_two_comparisons_and_one_table_of_both(tmp_path: Path) -> None:
    specs = [
        replace(gateway(name, share), variant=variant)
        for name in (YARDSTICK, "go-nethttp")
        for variant, share in (("one-thread", 0.1), ("two-threads", 0.2))
    ]
    tables = gateways.side_by_side(of(tmp_path, *specs), LINES, {})
    captions = ["100 sessions, one-thread", "100 sessions, two-threads", "100 sessions, by variant"]
    assert [one.caption for one in tables] == captions
    assert [cell.detail for cell in tables[2].rows[0][1:3]] == ["", "2.00 of one-thread"]
    assert [row[3].text for row in tables[2].rows] == ["1.42", "1.60"]


@pytest.mark.parametrize(
    ("factors", "compared", "notes"),
    [
        ((2.0, 2.2), "2.10 of near, 2.00 to 2.20 in 2 pairs", 0),
        ((2.0, 2.0, 2.0, 2.0, 2.0), "2.00 of near, 2.00 to 2.00", 1),
    ],
)
def test_the_ratio_of_variants_has_an_interval_or_the_range_of_too_few_pairs(
    factors: tuple[float, ...], compared: str, notes: int, tmp_path: Path
) -> None:
    specs = [
        replace(gateway(YARDSTICK, share), variant=variant, process=process)
        for process, factor in enumerate(factors, 1)
        for variant, share in (("near", 0.1), ("far", 0.1 * factor))
    ]
    table = gateways.side_by_side(of(tmp_path, *specs), LINES, {})[-1]
    assert (table.rows[0][2].detail, len(table.notes)) == (compared, notes)


def test_variants_that_do_not_use_two_cpus_are_not_set_beside_what_was_published_of_two(tmp_path: Path) -> None:
    specs = [replace(gateway(YARDSTICK, share), variant=name) for name, share in (("near", 0.1), ("far", 0.2))]
    table = gateways.side_by_side(of(tmp_path, *specs), LINES, {})[-1]
    assert len(table.columns) == len(table.rows[0]) == 3


def test_an_order_unlike_the_published_one_is_reported(tmp_path: Path) -> None:
    found = of(tmp_path, gateway(YARDSTICK, 0.1), gateway("go-nethttp", 0.05), gateway("python-fastapi", 0.15))
    assert gateways.differences(found) == (
        "go-nethttp needs less CPU per frame than rust-axum-plain here, and more in the published figures.",
        "go-nethttp needs less CPU per frame than python-fastapi here, and more in the published figures.",
    )


def test_the_picture_names_every_gateway_whose_lines_are_known(tmp_path: Path) -> None:
    drawn = gateways.picture(of(tmp_path, gateway(YARDSTICK, 0.1), gateway("go-nethttp", 0.05)), LINES)
    assert drawn is not None
    assert YARDSTICK in drawn.svg
    assert "go-nethttp: " in drawn.description
    assert gateways.picture(of(tmp_path / "again", gateway(YARDSTICK, 0.1)), LINES) is None
