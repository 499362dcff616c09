"""Published figures and ours: which correspond, how they are commented, and that there are no ratios."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bundles import Json, TrialSpec, bundle, edit, open_load
from ws_ladder_analysis import seeds, wording
from ws_ladder_analysis.cells import Table
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.published import Count, Series
from ws_ladder_analysis.published_tables import comparability, published_tables
from ws_ladder_analysis.report import Report, write_report
from ws_ladder_analysis.wording import plain

FLOOD = TrialSpec(due=20_000, totals_only=True)
PING = TrialSpec(
    workload="ping-latency",
    variant="closed",
    witness="reply",
    load={"model": "closed", "messages_per_connection": 50, "in_flight": 256},
    latencies={"response_ns": (2e6, 0.3)},
    due=5_000,
    bound_by="neither",
    totals_only=True,
)
STORM = TrialSpec(
    workload="connection-storm", tier=2_000, witness="reply", latencies={"handshake_ns": (1e6, 0.5)}, totals_only=True
)
LATE = (("start_skew", "workers started 60 ms apart, allowed 50 ms"),)


def found(folder: Path, *specs: TrialSpec, program: str = "") -> dict[str, list[dict[str, str]]]:
    """The section of a bundle: by caption, rows keyed by column title. `program` replaces the load generator's name."""
    root = bundle(folder, list(specs))
    if program:
        offered_by(root, specs, program)
    return {plain(one.caption): rows(one) for one in published_tables(ladders(read_bundle(root)))}


def offered_by(root: Path, specs: Sequence[TrialSpec], program: str) -> None:
    """Replaces the load generator's name in all trials."""

    def name(result: Json) -> None:
        for worker in result["workers"]:
            worker["program"] = program

    for spec in specs:
        edit(root / "trials" / spec.folder / "result.json", name)


def rows(table: Table) -> list[dict[str, str]]:
    """Rows keyed by column title; the smaller line in brackets."""
    titles = [column.title for column in table.columns]
    return [
        {
            title: plain(f"{cell.text} ({cell.detail})" if cell.detail else cell.text)
            for title, cell in zip(titles, row, strict=True)
        }
        for row in table.rows
    ]


JSON = "Floods: json, 175 bytes"
PER_CORE = "per core; ours per CPU of the service"


def test_a_flood_is_shown_below_the_published_figure_for_as_many_connections(tmp_path: Path) -> None:
    first, second, third, ours = found(tmp_path, FLOOD, replace(FLOOD, tier=200))[JSON]
    assert [row["messages/s"] for row in (first, second, third)] == ["14.5 M", "14.1 M", "13.5 M"]
    assert first == {
        "connections": "100",
        "whose": "published (Rust client, test 3; version 2.0.0)",
        "messages/s": "14.5 M",
        PER_CORE: "453 k (227 k per hardware thread)",
        "what it counts": "what a client wrote (the server, as published, parses it and throws it away)",
        "valid trials": "—",
        "bound by": "n/a",
        "comparable": "—",
    }
    assert ours == {
        "connections": "100",
        "whose": "wse-server (throughput)",
        "messages/s": "10.0 k",
        PER_CORE: "10.0 k (6 579 per CPU of both sides)",
        "what it counts": "what the application got (witness: application)",
        "valid trials": "1 of 1",
        "bound by": "service",
        "comparable": "not comparable, because theirs is what a client wrote, ours what the application got",
    }


def test_written_messages_never_have_a_ratio_to_delivered_ones(tmp_path: Path) -> None:
    section = found(tmp_path, FLOOD, replace(FLOOD, variant="x64", message=FLOOD.message | {"coalesce": 64}))
    rust = [one for one in seeds.FLOODS if one.source.program == seeds.WSE_BENCH]
    published = [one for one in rust if (one.format, one.size_bytes) == ("json", 175)]
    delivered = 10_000
    quotients = [
        quotient
        for one in published
        for theirs in (one.figures[100], one.figures[100] / seeds.CORES, one.figures[100] / seeds.THREADS)
        for quotient in (theirs / delivered, delivered / theirs)
    ]
    assert len(quotients) == 18
    for caption, lines in section.items():
        for line in lines:
            text = " ".join([caption, *line, *line.values()])
            assert not re.search(r"\b(ratio|times)\b|×|%", text)
            assert not {wording.digits(one) for one in quotients} & set(re.findall(r"[\d.]+", text))
    ours = [line for line in section[JSON] if not line["whose"].startswith("published")]
    assert len(ours) == 2
    assert all(line["comparable"].startswith("not comparable, because theirs is what a client wrote") for line in ours)
    assert ours[1]["comparable"].endswith("; and ours went 64 to a write")


@pytest.mark.parametrize("theirs", list(Count))
@pytest.mark.parametrize("ours", list(Count))
def test_only_figures_counted_alike_are_called_comparable(theirs: Count, ours: Count) -> None:
    verdict = comparability([theirs], ours).text
    assert (verdict == "counted alike, on another machine") == (theirs is ours)
    assert verdict.startswith("not comparable, because ") == (theirs is not ours)


def test_counting_alike_is_not_enough_where_something_else_differs() -> None:
    assert (
        comparability([Count.OPENED], Count.OPENED, ["theirs rested"]).text == "not comparable, because theirs rested"
    )


def test_no_published_flood_counts_the_same_as_ours() -> None:
    assert not {one.source.counted for one in seeds.FLOODS} & {Count.DELIVERED, Count.RECEIVED}


def test_a_rate_that_the_generator_bound_is_a_lower_bound_per_cpu_too(tmp_path: Path) -> None:
    *_, ours = found(tmp_path, replace(FLOOD, bound_by="generator", service_share=0.5, worker_share=0.97))[JSON]
    assert (ours["messages/s"], ours["bound by"]) == (">= 10.0 k", "generator")
    assert ours[PER_CORE] == ">= 10.0 k (6 803 per CPU of both sides)"


def test_unconfirmed_messages_are_not_throughput(tmp_path: Path) -> None:
    *_, ours = found(tmp_path, replace(FLOOD, witness="none"))[JSON]
    assert ours["messages/s"] == "n/a (10.0 k received)"
    assert ours[PER_CORE] == "n/a"
    assert ours["comparable"].endswith("ours what the service read and no application saw")


def test_a_service_of_several_cpus_is_divided_by_them_and_one_of_a_fraction_by_nothing(tmp_path: Path) -> None:
    def limited(folder: Path, cpus: float) -> str:
        root = bundle(folder, [FLOOD])

        def limit(result: Json) -> None:
            for reading in result["service"].values():
                reading["cpu_limit"] = cpus

        edit(root / "trials" / FLOOD.folder / "result.json", limit)
        (_, table, *_) = published_tables(ladders(read_bundle(root)))
        return rows(table)[-1][PER_CORE]

    assert limited(tmp_path / "four", 4.0).startswith("2 500 (")
    assert limited(tmp_path / "tenth", 0.1).startswith("n/a (")


def test_formats_and_sizes_have_tables_of_their_own(tmp_path: Path) -> None:
    packed = replace(
        FLOOD, workload="format-comparison", variant="msgpack", message=FLOOD.message | {"format": "msgpack"}
    )
    large = replace(FLOOD, workload="size-matrix", variant="64k", message=FLOOD.message | {"size_bytes": 65_536})
    odd = replace(FLOOD, variant="odd", message=FLOOD.message | {"size_bytes": 300})
    section = found(tmp_path, packed, large, odd)
    assert [caption for caption in section if caption.startswith("Floods")] == [
        "Floods: msgpack, 175 bytes",
        "Floods: json, 65 536 bytes",
    ]
    theirs, ours = section["Floods: msgpack, 175 bytes"]
    assert theirs["messages/s"] == "29.6 M"
    assert theirs["what it counts"] == "what a client wrote (the server, as published, throws it away undecoded)"
    assert ours["whose"] == "wse-server (format-comparison · msgpack)"


def test_connections_accepted_are_counted_alike(tmp_path: Path) -> None:
    theirs, ours = found(tmp_path, STORM)["Connections accepted"]
    assert (theirs["accepted/s"], theirs[PER_CORE]) == ("15.0 k", "469 (235 per hardware thread)")
    assert (ours["accepted/s"], ours["what it counts"]) == (
        "1 000",
        "connections that were reported ready and sent their first message (witness: reply)",
    )
    assert ours["comparable"] == "counted alike, on another machine"


def test_a_latency_is_divided_by_nothing_and_never_comparable(tmp_path: Path) -> None:
    section = found(tmp_path, PING, replace(PING, variant="open", load=open_load(2_000)))
    theirs, overview, ours = section["Pings in a closed loop"]
    assert [theirs[f"p{at:g}"] for at in seeds.PERCENTILES] == ["380 µs", "790 µs", "11.9 ms", "23.7 ms", "37.7 ms"]
    assert (overview["p50"], overview["p99"]) == ("1.00 ms", "n/a")
    assert ours["p50"].endswith(" ms")
    # 5 000 samples are enough for p99.9 but not for p99.99.
    assert ours["p99.99"] == "n/a"
    assert ours["comparable"].startswith("not comparable, because a closed loop's round trip is the length of a queue")
    assert not any("core" in title or "CPU" in title for title in ours)


def test_each_client_is_compared_with_its_own_kind(tmp_path: Path) -> None:
    one, many = replace(FLOOD, workers=1), replace(FLOOD, tier=6_400, workers=64, due=64_000)
    single = found(tmp_path / "one", one, program="wse-ts-bench 0.1.0")[JSON]
    assert [row["messages/s"] for row in single] == ["116 k", "117 k", "10.0 k"]
    assert single[0][PER_CORE] == "116 k (of one client thread)"
    assert single[-1]["comparable"].startswith("not comparable, because theirs is what a client put into its buffers")
    several = found(tmp_path / "many", many, program="wse-ts-bench 0.1.0")[JSON]
    assert several[0][PER_CORE] == "217 k (109 k per hardware thread)"
    assert JSON not in found(tmp_path / "two", replace(FLOOD, workers=2), program="wse-ts-bench 0.1.0")
    assert found(tmp_path / "python", FLOOD, program="wse-py-bench 0.1.0")[JSON][0]["messages/s"] == "2.30 M"


def test_an_invalid_trial_shows_as_such_and_none_makes_a_section(tmp_path: Path) -> None:
    late = replace(FLOOD, tier=500, due=900_000, reasons=LATE)
    lines = found(tmp_path / "some", FLOOD, late)[JSON]
    assert (lines[-1]["connections"], lines[-1]["messages/s"], lines[-1]["valid trials"]) == (
        "500",
        "no valid trial",
        "0 of 1",
    )
    assert not any("450 k" in text for line in lines for text in line.values())
    assert found(tmp_path / "none", late) == {}
    assert found(tmp_path / "failed", replace(FLOOD, state={"state": "failed", "reason": "no port"})) == {}


def test_a_median_is_over_valid_trials_alone(tmp_path: Path) -> None:
    *_, ours = found(tmp_path, FLOOD, replace(FLOOD, repeat=2, due=90_000, reasons=LATE))[JSON]
    assert (ours["messages/s"], ours["valid trials"]) == ("10.0 k", "1 of 2")


HOLD = TrialSpec(
    workload="sustained-hold",
    witness="reply",
    tier=1_000,
    load=open_load(200),
    latencies={"response_ns": (2e6, 0.3)},
    seconds=30.0,
    due=6_000,
    totals_only=True,
)


def test_a_hold_shows_how_many_lasted_and_the_unanswered_pings(tmp_path: Path) -> None:
    root = bundle(tmp_path, [HOLD])

    def lose(result: Json) -> None:
        result["connections"]["closed_early"] = {"reset": 3}
        result["messages"].update(delivered=5_990, lost=10)

    edit(root / "trials" / HOLD.folder / "result.json", lose)
    _, held, _ = map(rows, published_tables(ladders(read_bundle(root))))
    theirs, ours = held
    assert (theirs["lasted"], theirs["for"]) == ("100 %", "30.0 s")
    assert (ours["lasted"], ours["for"]) == ("997 of 1 000 (10 of 6 000 pings unanswered)", "30.0 s")
    assert ours["comparable"].startswith("not comparable, because theirs is connections that were not observed to end")


def test_a_limit_is_the_highest_tier_whose_connections_all_lasted(tmp_path: Path) -> None:
    probe = replace(HOLD, workload="connection-limit", seconds=3.0, due=2_000)
    specs = [probe, replace(probe, tier=2_000), replace(probe, tier=4_000, lost=1)]
    theirs, ours = found(tmp_path, *specs)["The most connections"]
    assert (theirs["connections"], theirs["no more, because"]) == (
        "499 000",
        "the server was configured to take 500 000",
    )
    assert (ours["connections"], ours["what it counts"]) == (
        "2 000",
        "connections that stayed open, with every ping accounted for (witness: reply)",
    )
    assert ours["comparable"].startswith(
        "not comparable, because theirs is connections opened, up to a limit that was set"
    )


def test_memory_is_of_the_calmest_ladder_at_its_highest_tier(tmp_path: Path) -> None:
    specs = [replace(FLOOD, tier=500, bytes_per_connection=9_000), replace(PING, tier=500), PING, STORM]
    *theirs, ours = found(tmp_path / "storm", *specs)["Memory of a connection"]
    assert [line["for each connection"] for line in theirs] == [
        "4.30 KiB (about 440 MB)",
        "264 KiB (about 27 GB)",
        "254 KiB (about 65 GB)",
        "232 KiB (about 119 GB)",
        "240 KiB (about 123 GB)",
    ]
    assert ours["whose"] == "wse-server (connection-storm)"
    *_, ours = found(tmp_path / "calm", *specs[:-1])["Memory of a connection"]
    assert (ours["whose"], ours["connections"]) == ("wse-server (ping-latency · closed)", "500")
    assert ours["for each connection"] == "4.30 KiB"
    assert ours["comparable"] == (
        "not comparable, because theirs is a number of which nobody says how it was found or all resident memory under"
        " a load, divided by the connections, ours what an open connection adds to the service's resident memory"
    )


@pytest.mark.parametrize(
    "change", [{"service": "self-test-null"}, {"workload": "sessions"}, {"load": open_load(1_000), "tier": 77}]
)
def test_unpublished_combinations_have_no_rates(tmp_path: Path, change: dict[str, object]) -> None:
    spec = replace(FLOOD, **change)  # type: ignore[arg-type]
    assert not [caption for caption in found(tmp_path, spec) if caption.startswith("Floods")]


def test_a_service_of_another_protocol_has_no_section(tmp_path: Path) -> None:
    assert found(tmp_path, FLOOD, program="stt-loadgen 0.1.0") == {}


def test_every_figure_names_its_document_its_version_and_what_it_counted() -> None:
    everything: tuple[Series[Any], ...] = (
        *seeds.FLOODS,
        *seeds.STORMS,
        *seeds.PINGS,
        *seeds.HOLDS,
        *seeds.LIMITS,
        *seeds.MEMORY,
    )
    for one in everything:
        source = one.source
        assert all(
            (source.document.title, source.document.really, source.part, source.version, source.caveats, one.figures)
        )
        assert all(not re.search(r"\.$", text) for text in (source.fate, source.counted))
        assert all(text.endswith(".") for text in source.caveats)


def test_the_report_has_the_section_in_both_forms(example_report: tuple[Path, Report]) -> None:
    page, written = example_report
    captions = [plain(one.caption) for one in written.published_tables]
    assert captions[0].startswith("Published documents, all of one machine")
    assert captions[1:] == [JSON, "Connections accepted", "Memory of a connection"]
    html, markdown = page.read_text(encoding="utf-8"), page.with_name("report.md").read_text(encoding="utf-8")
    assert '<a href="#published">Published figures for the same load</a>' in html
    assert markdown.index("## Published figures for the same load") < markdown.index("## Books")
    for text in (
        "| published (Rust client, test 3; version 2.0.0) | 14.5 M |",
        "All floods: the server program",
    ):
        assert text in markdown


def test_a_report_without_published_counterparts_has_no_section(tmp_path: Path) -> None:
    page, written = write_report(bundle(tmp_path, [replace(FLOOD, reasons=LATE)]))
    assert written.published_tables == ()
    assert "Published figures for" not in page.read_text(encoding="utf-8")
