"""A bundle in the formats of other tools: Bencher and Fortio."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bench_format.histogram import HIGHEST_NS, Values, percentile_ns

from tests.bundles import TrialSpec, bundle, open_load
from ws_ladder_analysis.__main__ import main
from ws_ladder_analysis.fortio import duration_histogram
from ws_ladder_analysis.load import read_bundle

FLOOD = TrialSpec(service="gateway")
OPEN = replace(
    FLOOD,
    workload="ping-latency",
    load=open_load(10_000),
    witness="reply",
    latencies={"response_ns": (1e6, 0.5), "service_ns": (0.9e6, 0.5)},
)


def exported(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["export", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_bencher_gets_each_figure_with_the_range_of_its_repeats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = bundle(tmp_path, [FLOOD, replace(FLOOD, process=2, due=40_000)])
    measures = json.loads(exported(capsys, root, "--format", "bencher"))["gateway/throughput/standard/100"]
    rate = measures["delivered-per-second"]
    assert (rate["lower_value"], rate["upper_value"]) == (10_000, 20_000)
    assert rate["value"] == pytest.approx((10_000 * 20_000) ** 0.5)
    assert set(measures) >= {"cpu-per-million-messages", "memory-per-connection"}


def test_bencher_gets_no_lower_bounds_no_scheduled_rates_and_no_invalid_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bound = replace(FLOOD, bound_by="generator", service_share=0.5, worker_share=0.99)
    invalid = replace(FLOOD, variant="batch", reasons=(("start_skew", "90 ms apart"),))
    root = bundle(tmp_path, [bound, OPEN, invalid])
    exported(capsys, root, "--format", "bencher", "--output", tmp_path / "bencher.json")
    found = json.loads((tmp_path / "bencher.json").read_text())
    assert set(found) == {"gateway/throughput/standard/100", "gateway/ping-latency/standard/100"}
    assert not [name for measures in found.values() for name in measures if name.endswith("per-second")]


def fortio(tmp_path: Path, capsys: pytest.CaptureFixture[str], *specs: TrialSpec) -> dict[str, dict[str, Any]]:
    """The results by the name of their histogram; each file has the name that Fortio gives it."""
    files = exported(capsys, bundle(tmp_path, list(specs)), "--format", "fortio").splitlines()
    found = [json.loads(Path(file).read_text()) for file in files]
    assert [Path(file).stem for file in files] == [one["ID"] for one in found]
    return {one["Labels"].rpartition(" ")[2]: one for one in found}


def test_fortio_gets_one_result_for_each_histogram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = fortio(tmp_path, capsys, OPEN, replace(OPEN, process=2))
    assert set(found) == {"response", "service"}
    result = found["response"]
    assert (result["RequestedQPS"], result["RequestedDuration"], result["NumThreads"]) == ("10000", "4s", 100)
    assert result["ActualQPS"] == pytest.approx(10_000)
    assert result["ActualDuration"] == 4_000_000_000
    assert result["RetCodes"] == {"200": 40_000}
    assert datetime.fromisoformat(result["StartTime"]).tzinfo is not None
    assert result["ID"].endswith("_gateway_ping_latency_standard_100_response")


def test_fortio_s_percentiles_are_those_of_the_merged_histogram(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = replace(OPEN, process=2, latencies={"response_ns": (5e6, 0.5)})
    seen = fortio(tmp_path, capsys, OPEN, slow)["response"]["DurationHistogram"]
    trials = read_bundle(tmp_path / "2026-11-21-example").trials
    counts: dict[int, int] = {}
    for trial in trials:
        for value, count in trial.histograms["response_ns"].counts.items():
            counts[value] = counts.get(value, 0) + count
    merged = Values(dict(sorted(counts.items())))
    percentiles = {one["Percentile"]: one["Value"] for one in seen["Percentiles"]}
    assert percentiles == {at: (percentile_ns(merged, at) or 0) / 1e9 for at in (50, 75, 90, 99, 99.9)}


def test_fortio_s_buckets_are_ordered_cover_all_and_end_at_100_percent() -> None:
    found: Any = duration_histogram(Values({1_000: 5, 2_000: 3, 1_000_000_000: 2}))
    data = found["Data"]
    assert [one["Count"] for one in data] == [5, 3, 2]
    assert [one["Percent"] for one in data] == [50, 80, 100]
    assert all(one["Start"] <= one["End"] for one in data)
    assert all(one["End"] <= other["Start"] for one, other in pairwise(data))
    assert (found["Count"], found["Min"], data[-1]["End"]) == (10, 1e-6, found["Max"])
    assert found["Avg"] == pytest.approx(0.2, rel=0.01)
    assert found["Sum"] == pytest.approx(2, rel=0.01)
    # p50 needs one sample, p75 more than ten.
    assert [one["Percentile"] for one in found["Percentiles"]] == [50]


def test_values_beyond_the_range_are_the_last_bucket() -> None:
    found: Any = duration_histogram(Values({1_000: 9}, overflow=1))
    assert (found["Count"], found["Max"]) == (10, HIGHEST_NS / 1e9)
    assert found["Data"][-1]["Count"] == 1


def test_failed_messages_are_errors_in_fortio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fortio(tmp_path, capsys, replace(OPEN, dropped=500))["response"]["RetCodes"]["dropped"] == 500


def test_a_folder_that_is_not_a_bundle_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "--format", "fortio"]) == 2
    assert "is not a bundle" in capsys.readouterr().err
