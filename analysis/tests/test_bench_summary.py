"""The summary of `just bench` (`tools/bench_summary.py`): which figures a row has and why others are missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench_rows import PARTS, ROWS
from bench_summary import Evidence, Floor, Row, markdown, number, summary, wire

from tests.bundles import Json, TrialSpec, bundle, open_load
from ws_ladder_analysis.load import read_bundle

DICT = TrialSpec(service="wse-server-dict", variant="x64")
FLOOD = "drain_inbound (dict), 64 per write: delivered; reference with drain mode on"
BATCH_COST = "drain_batch, 64 per write: service CPU per delivered message; reference with drain mode on"
STORM = TrialSpec(
    "wse-server", "connection-storm", "jwt", 5000, latencies={"handshake_ns": (2e6, 0.3)}, witness="reply"
)
PINGS: Json = {"load": open_load(10_000), "latencies": {"response_ns": (2e5, 0.4)}, "witness": "reply"}
PING = TrialSpec("wse-server", "ping-latency", "open", 1000, **PINGS)


def processes(spec: TrialSpec, *due: int) -> list[TrialSpec]:
    """One trial per process; they differ in the number of messages that were due."""
    return [replace(spec, process=process, due=count) for process, count in enumerate(due, 1)]


def rows(folder: Path, part: str, specs: list[TrialSpec], *floor: Floor) -> dict[str, Row]:
    """The rows of a part with these trials and floor reports, by name."""
    found = Evidence(read_bundle(bundle(folder, specs)), floor, ["ladder run", "floor"])
    names = {asked.name for asked in ROWS if asked.part == part}
    return {one.name: one for one in summary({part: found}) if one.name in names}


def report(**figures: list[float | None]) -> Floor:
    """The output of the floor's program, reduced to what is read."""
    return {"figures": [{"name": name, "unit": "?", "values": values} for name, values in figures.items()]}


def test_more_delivered_is_as_many_times_better(tmp_path: Path) -> None:
    reference = replace(DICT, service="wse-reference")
    specs = processes(DICT, *[12_000, 12_060] * 3) + processes(reference, *[2_000, 2_010] * 3)
    one = rows(tmp_path, "flood-64", specs)[FLOOD]
    assert (one.ours, one.reference) == pytest.approx((6_015, 1_002.5), rel=1e-4)
    assert (one.floor, one.ratio_of) == (None, "ours / reference")
    assert one.ratio == pytest.approx(6)
    assert one.interval == pytest.approx((6, 6), abs=0.1)
    assert (one.bound_by, one.why) == ({"ours": "service", "reference": "service"}, None)
    assert one.command == "ladder run; floor"


def test_deliveries_for_a_second_of_cpu_are_compared_with_the_reference_and_their_cpu_with_the_floor(
    tmp_path: Path,
) -> None:
    ours = TrialSpec("wse-server-fanout", "fanout-broadcast", "flood-5000", 5000, service_share=0.5)
    reference = replace(ours, service="wse-reference-fanout", service_share=1.0)
    specs = processes(ours, *[10_000] * 3) + processes(reference, *[1_000] * 3)
    found = rows(tmp_path, "fanout-flood-5000", specs, report(server_cpu=[50_000.0], client_cpu=[1.0]))
    # 1 s of CPU for 10 000 messages against 2 s for 1 000.
    one = found["fan-out to 5 000, flood: per second of service CPU"]
    assert (one.ours, one.reference) == pytest.approx((10_000, 500))
    assert one.ratio_of == "ours / reference"
    assert one.ratio == pytest.approx(20)
    one = found["fan-out to 5 000, flood: service CPU"]
    assert (one.ours, one.floor, one.ratio) == pytest.approx((100_000, 50_000, 2))
    assert one.ratio_of == "ours / floor"


def test_less_cpu_is_as_many_times_better(tmp_path: Path) -> None:
    ours = replace(DICT, service="wse-server", service_share=0.5)
    reference = replace(DICT, service="wse-reference", service_share=1.0)
    one = rows(tmp_path, "flood-64", processes(ours, *[10_000] * 3) + processes(reference, *[1_000] * 3))[BATCH_COST]
    # 1 s of CPU for 10 000 messages against 2 s for 1 000.
    assert (one.ours, one.reference) == pytest.approx((100_000, 2_000_000))
    assert one.ratio == pytest.approx(20)
    assert one.ratio_of == "reference / ours"


def test_against_the_floor_a_ratio_is_the_distance(tmp_path: Path) -> None:
    specs = processes(replace(STORM, service_share=0.05, worker_share=0.1), *[1] * 5)
    floors = report(server_cpu=[10.0] * 3, client_cpu=[20.0]), report(server_cpu=[10.0] * 2, client_cpu=[20.0, None])
    found = rows(tmp_path, "handshake", specs, *floors)
    service, generator = (found[f"handshake with JWT: {side} CPU"] for side in ("service", "generator"))
    # 0.1 s and 0.2 s of CPU for 5 000 handshakes.
    assert (service.ours, service.floor, service.ratio) == pytest.approx((20, 10, 2))
    assert service.ratio_of == "ours / floor"
    assert service.interval == pytest.approx((2, 2))
    assert (generator.ours, generator.ratio) == pytest.approx((40, 2))
    assert generator.interval is None
    assert generator.why == "no interval: 5 and 2 processes, 5 each are needed"
    # The plan names the reference, but this bundle has no trial of it.
    assert service.why == "reference: the bundle has no trial of wse-reference"


def test_a_row_whose_reference_is_another_part_says_how_many_times_costlier_it_is(tmp_path: Path) -> None:
    template = TrialSpec("wse-server-described", "request-reply", "template", 1000, **(PINGS | {"worker_share": 0.26}))
    compiled = replace(template, service="wse-server", workload="ping-latency", variant="compiled", worker_share=0.2)
    # The geometric mean of both parts of ours is 1.3 times the reference.
    before, after = replace(template, worker_share=0.13), replace(template, worker_share=0.52)
    parts = {"template-before": before, "template-compiled": compiled, "template-after": after}
    evidence = {
        name: Evidence(
            read_bundle(bundle(tmp_path / name, processes(spec, *[20_000] * 5))), (), [f"run {spec.variant}"]
        )
        for name, spec in parts.items()
    }
    name = "generator CPU for pings at 10 000/s: ws-bench with a template; reference wse-bench"
    (one,) = (row for row in summary(evidence) if row.name == name)
    assert one.ratio_of == "ours / reference"
    assert one.ratio == pytest.approx(1.3)
    assert one.interval is not None
    assert one.interval[0] < 1.3 < one.interval[1]
    assert one.command == "run template; run compiled"
    assert one.why is None
    del evidence["template-compiled"]
    (one,) = (row for row in summary(evidence) if row.name == name)
    assert (one.ratio, one.reference) == (None, None)
    assert one.why == "reference: bench-websocket ping-latency/compiled was not climbed"


def test_a_percentile_comes_in_the_floors_unit(tmp_path: Path) -> None:
    specs = processes(PING, *[20_000] * 3)
    found = rows(tmp_path, "ping", specs, report(response_p50=[100_000.0] * 3, response_p99=[None] * 3))
    middle, tail = (found[f"ping at 10 000/s over 1 000 connections: p{at}"] for at in (50, 99))
    assert (middle.ours, middle.floor) == pytest.approx((200, 100), rel=0.05)
    # `bound_by` applies to closed loads only.
    assert middle.bound_by is None
    assert (tail.floor, tail.ratio, tail.interval) == (None, None, None)
    assert tail.why is not None
    assert "floor: it has no response_p99" in tail.why


def test_invalid_trials_give_no_figure_and_have_a_reason(tmp_path: Path) -> None:
    late = replace(PING, reasons=(("generator_late", "p99 of the delay is 9 ms"),))
    found = rows(tmp_path, "ping", processes(late, *[20_000] * 3))
    one = found["ping at 10 000/s over 1 000 connections: p50"]
    assert (one.ours, one.ratio) == (None, None)
    assert one.why is not None
    assert "ours: 3 of 3 trials can't be used" in one.why
    assert "p99 of the delay is 9 ms" in one.why


def test_a_failed_trial_is_reported_as_failed(tmp_path: Path) -> None:
    failed = replace(DICT, state={"state": "failed", "reason": "the service never got ready"})
    one = rows(tmp_path, "flood-64", [failed])[FLOOD]
    assert one.why is not None
    assert "the service never got ready" in one.why


def test_parts_that_were_not_climbed_are_null_with_a_note() -> None:
    found = summary({})
    assert len(found) == len(ROWS)
    for one in found:
        assert (one.ours, one.reference, one.floor, one.ratio, one.interval) == (None,) * 5
        assert one.why is not None
        assert "was not climbed" in one.why


def test_the_json_has_the_fields_that_are_documented() -> None:
    text = json.dumps(wire(summary({})))
    page = (Path(__file__).parents[2] / "docs/PERFORMANCE.md").read_text(encoding="utf-8")
    for one in json.loads(text):
        assert list(one)[:5] == ["name", "unit", "ours", "reference", "floor"]
        assert all(f"`{name}`" in page for name in one)


def test_the_table_has_a_row_for_each_and_names_missing_ones(tmp_path: Path) -> None:
    specs = processes(DICT, *[2_469_135] * 3)
    found = list(rows(tmp_path, "flood-64", specs).values())
    text = markdown(found)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == len(found) + 2
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert f"- {FLOOD}: reference: the bundle has no trial of wse-reference" in text


def test_numbers_have_three_digits_or_their_thousands() -> None:
    assert [number(value) for value in (None, 0.1234, 33.33, 1_234_567.8)] == ["—", "0.123", "33.3", "1 234 568"]


def test_every_row_has_its_part_and_every_part_a_ladder_of_its_plan() -> None:
    used = {name for asked in ROWS for name in (asked.part, asked.again, asked.reference_part) if name}
    assert used == {part.name for part in PARTS}
    for part in PARTS:
        text = (Path(__file__).parents[2] / f"plans/{part.plan}.yaml").read_text(encoding="utf-8")
        workload, variant = part.ladder
        assert f"workload: {workload}\n    variant: {variant}\n" in text
