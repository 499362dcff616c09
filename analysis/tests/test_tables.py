"""The exact text of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundles import TrialSpec, bundle, open_load, p99_at_most
from ws_ladder_analysis import overview, tables
from ws_ladder_analysis.cells import Table, Tone
from ws_ladder_analysis.ladders import Ladder, ladders
from ws_ladder_analysis.load import Bundle, read_bundle
from ws_ladder_analysis.wording import plain

FLOOD = TrialSpec(due=400_000, dropped=2_000)


def text(table: Table) -> list[str]:
    """A table as readable lines, for comparison."""
    head = " | ".join(column.title for column in table.columns)
    rows = [
        " | ".join(f"{cell.text} ({cell.detail})" if cell.detail else cell.text for cell in row) for row in table.rows
    ]
    return [plain(line) for line in (head, *rows)]


def ladder_of(folder: Path, specs: Sequence[TrialSpec]) -> Ladder:
    """The only ladder of a bundle with these trials."""
    (ladder,) = ladders(read_bundle(bundle(folder, list(specs))))
    return ladder


def cells(table: Table, title: str) -> list[str]:
    """The texts of the column with this title."""
    place = [column.title for column in table.columns].index(title)
    return [plain(row[place].text) for row in table.rows]


def test_a_flood_prints_its_tiers_with_mean_and_range(tmp_path: Path) -> None:
    specs = [replace(FLOOD, process=process, due=due) for process, due in ((1, 400_000), (2, 410_000), (3, 396_000))]
    assert text(tables.tiers(ladder_of(tmp_path, specs))) == [
        "connections | valid trials | bound by | written/s | delivered/s | dropped/s | service CPU per million"
        " | with generator | service CPU | generator CPU | memory per connection | failed",
        "100 | 3 of 3 | service | 201 k (198–205 k) | 200 k (197–204 k) | 1 000 | 4.85 s (4.75–4.92 s)"
        " | 7.59 s (7.44–7.70 s) | 97 % | 55 % | 4.30 KiB | 0.498 % (0.488–0.505 %)",
    ]


def test_a_flood_that_the_generator_bound_prints_a_lower_bound_and_what_was_missing(tmp_path: Path) -> None:
    spec = replace(FLOOD, bound_by="generator", service_share=0.5, worker_share=0.98)
    table = tables.tiers(ladder_of(tmp_path, [spec]))
    assert cells(table, "delivered/s") == [">= 199 k"]
    assert cells(table, "written/s") == ["200 k"]
    assert [plain(note) for note in table.notes] == [
        "100 connections: the generator gave out first: the service can do at least this."
        " The generator used 98 % of its CPU and the service 50 %."
        " To use up the service's CPU at the same cost per message, the generator would have needed about 2.00 times"
        " its CPU: 1.96 CPUs instead of 0.980."
    ]


def test_a_flood_without_bound_has_a_hint_where_to_look(tmp_path: Path) -> None:
    spec = replace(FLOOD, bound_by="neither", service_share=0.3, worker_share=0.3)
    (note,) = tables.tiers(ladder_of(tmp_path, [spec])).notes
    assert "look for a lock or a window or a single-threaded stage" in note


@pytest.mark.parametrize(
    ("samples", "lacking"), [(458, {"p99", "p99.9"}), (459, {"p99.9"}), (4_602, {"p99.9"}), (4_603, set())]
)
def test_percentiles_without_enough_samples_print_not_available(
    tmp_path: Path, samples: int, lacking: set[str]
) -> None:
    spec = TrialSpec(latencies={"response_ns": (1e6, 0.5)}, samples=samples, workers=1)
    table = tables.tiers(ladder_of(tmp_path, [spec]))
    found = {name: cells(table, f"{name} response") for name in ("p50", "p99", "p99.9")}
    assert {name for name, column in found.items() if column == ["n/a"]} == lacking


def test_merged_repeats_can_carry_a_percentile_that_none_of_them_can(tmp_path: Path) -> None:
    spec = TrialSpec(latencies={"response_ns": (1e6, 0.5)}, samples=300, workers=1)
    ladder = ladder_of(tmp_path, [spec, replace(spec, repeat=2)])
    merged = tables.percentiles(ladder)
    assert merged is not None
    assert cells(merged, "samples") == ["600"]
    assert cells(merged, "p99")[0].endswith(" ms")
    # Without a range, because no single trial has one.
    assert cells(tables.tiers(ladder), "p99 response") == cells(merged, "p99")


def test_a_storm_prints_handshakes_and_no_messages(tmp_path: Path) -> None:
    spec = TrialSpec(workload="connection-storm", witness="reply", tier=500, latencies={"handshake_ns": (1e6, 0.5)})
    titles = [column.title for column in tables.tiers(ladder_of(tmp_path, [spec])).columns]
    assert "accepted/s" in titles
    assert "p99 handshake" in titles
    assert not {"written/s", "delivered/s", "p99 response", "service CPU per million"} & set(titles)


def test_without_a_witness_there_is_no_throughput_figure(tmp_path: Path) -> None:
    ladder = ladder_of(tmp_path, [replace(FLOOD, witness="none")])
    titles = [column.title for column in tables.tiers(ladder).columns]
    assert "delivered/s" not in titles
    assert "failed" not in titles
    assert "written/s" in titles
    headline = overview.headlines([ladder])
    assert (cells(headline, "witness"), cells(headline, "carries")) == (["none"], ["n/a"])


OPEN = TrialSpec(
    load=open_load(10_000),
    witness="reply",
    latencies={"response_ns": (1e6, 0.5), "delay_ns": (30e3, 0.5)},
    objectives=(p99_at_most(5.0),),
)
SLOW = {"response_ns": (5e6, 0.5), "delay_ns": (30e3, 0.5)}


def test_verdicts_pass_fail_and_disagree(tmp_path: Path) -> None:
    specs = [
        replace(OPEN, tier=10),
        replace(OPEN, tier=10, repeat=2),
        replace(OPEN, tier=20),
        replace(OPEN, tier=20, repeat=2, latencies=SLOW),
        replace(OPEN, tier=30, latencies=SLOW),
    ]
    table = tables.tiers(ladder_of(tmp_path, specs))
    place = [column.title for column in table.columns].index("verdict")
    verdicts = [(row[place].text, row[place].detail, row[place].tone) for row in table.rows]
    assert verdicts == [("pass", "2 of 2", Tone.GOOD), ("borderline", "1 of 2", Tone.WARN), ("fail", "", Tone.BAD)]


def test_the_headline_is_the_highest_tier_that_passes(tmp_path: Path) -> None:
    specs = [replace(OPEN, tier=10), replace(OPEN, tier=20), replace(OPEN, tier=30, latencies=SLOW)]
    assert cells(overview.headlines([ladder_of(tmp_path, specs)]), "connections") == ["20"]


def test_the_headline_of_a_flood_is_its_fastest_tier(tmp_path: Path) -> None:
    specs = [replace(FLOOD, tier=tier, due=due) for tier, due in ((10, 100_000), (20, 400_000), (30, 300_000))]
    assert cells(overview.headlines([ladder_of(tmp_path, specs)]), "connections") == ["20"]


def test_an_invalid_trial_is_in_no_figure_and_listed_with_its_reason(tmp_path: Path) -> None:
    late = replace(
        FLOOD,
        repeat=2,
        due=900_000,
        reasons=(("generator_late", "the generator was late: p99 of delay 61 ms, allowed 5 ms"),),
    )
    ladder = ladder_of(tmp_path, [FLOOD, late])
    table = tables.tiers(ladder)
    assert (cells(table, "valid trials"), cells(table, "written/s")) == (["1 of 2"], ["200 k"])
    listed = overview.unusable([ladder])
    assert listed is not None
    assert text(listed)[1] == (
        "wse-server/throughput/standard/100-p1-r2 | invalid: the generator was late: p99 of delay 61 ms, allowed 5 ms"
    )


def test_several_reasons_are_all_shown(tmp_path: Path) -> None:
    reasons = (
        ("start_skew", "workers started 90 ms apart, allowed 50 ms"),
        ("unaccounted", "3 of 10 connections differ"),
    )
    listed = overview.unusable([ladder_of(tmp_path, [replace(FLOOD, reasons=reasons)])])
    assert listed is not None
    assert listed.rows[0][1].text == (
        "invalid: the workers didn't start together: workers started 90 ms apart, allowed 50 ms;"
        " the books don't balance: 3 of 10 connections differ"
    )


@pytest.mark.parametrize(
    ("state", "description"),
    [
        ({"state": "failed", "reason": "no port"}, "not measured: no port"),
        ({"state": "crashed", "cause": "service_oom", "reason": "pod p was OOMKilled"}, "failed: service_oom"),
        ({"state": "pending"}, "not started"),
        ({"state": "started", "attempt": 2}, "interrupted in attempt 2"),
    ],
)
def test_a_trial_without_a_result_is_a_row_with_its_reason(
    tmp_path: Path, state: dict[str, object], description: str
) -> None:
    table = tables.trials(ladder_of(tmp_path, [FLOOD, replace(FLOOD, repeat=2, state=state)]))
    assert cells(table, "how it ended") == ["valid", description]


def test_every_equation_is_ticked_or_not(tmp_path: Path) -> None:
    lost = replace(FLOOD, dropped=0, lost=1, repeat=2, reasons=(("unaccounted", "1 of 100 connections differ"),))
    table = tables.books(ladder_of(tmp_path, [replace(FLOOD, dropped=0), lost]))
    assert cells(table, "") == ["✓ holds"] * 5 + ["✓ holds", "✓ holds", "✗ differs", "✓ holds", "✗ differs"]
    assert text(table)[8] == (
        "100 · process 1 · repeat 2 | sent = delivered (application) + dropped | 400 000 | 399 999"
        " | delivered (application) 399 999 + dropped(inbound_overflow) 0 | ✗ differs"
    )


def test_the_example_compares_its_services(example_bundle: Bundle) -> None:
    from ws_ladder_analysis.compare import compare

    table = overview.comparisons(compare(ladders(example_bundle)))
    assert table is not None
    assert text(table)[:2] == [
        "connections | figure | wse-server | wse-reference | ratio | interval | what it shows",
        "100 | accepted per second | 18.0 k | 9 006 | 2.00 × (pairs: 2.00, 2.00, 2.00, 2.00, 2.00) | 2.00–2.00"
        " | wse-server is better",
    ]


def test_closed_round_trips_that_nothing_bound_are_called_that(tmp_path: Path) -> None:
    load = {"model": "closed", "messages_per_connection": 50, "in_flight": 256}
    spec = replace(FLOOD, load=load, bound_by="neither", service_share=0.3, worker_share=0.3)
    (note,) = tables.tiers(ladder_of(tmp_path, [spec])).notes
    assert note.endswith("every connection waits for its answer, so this is a round trip, not a capacity.")
