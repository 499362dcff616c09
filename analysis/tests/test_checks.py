"""All recomputable figures are recomputed, and files that disagree are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bundles import (
    Json,
    TrialSpec,
    bundle,
    edit,
    histogram,
    lognormal,
    open_load,
    p99_at_most,
)
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.load import Bundle, read_bundle

# Measured trials that the judge's tests use, too.
JUDGED = Path(__file__).resolve().parents[2] / "loadgen/judge/tests/trials"
CLOSED = TrialSpec(latencies={"response_ns": (1e6, 0.5)}, due=10_000)
OPEN = TrialSpec(
    workload="ping-latency",
    load=open_load(5_000),
    witness="reply",
    due=10_000,
    latencies={"response_ns": (1e6, 0.5), "delay_ns": (30e3, 0.8)},
    objectives=(p99_at_most(10.0),),
)
STORM = TrialSpec(workload="connection-storm", witness="reply", latencies={"handshake_ns": (1e6, 0.5)}, failed=3)
INVALID = TrialSpec(reasons=(("unaccounted", "sent = delivered + dropped: 20000 against 19999"),), lost=1)


def found(folder: Path) -> list[str]:
    """The texts of the disagreements."""
    return [one.description for one in check(read_bundle(folder)).disagreements]


def changed(folder: Path, spec: TrialSpec, change: Callable[[Json], object], file: str = "result.json") -> list[str]:
    """The disagreements of a bundle with one trial after a change to one of its files."""
    root = bundle(folder, [spec])
    edit(root / "trials" / spec.folder / file, change)
    return found(root)


def test_an_honest_bundle_agrees_with_itself(example_bundle: Bundle) -> None:
    checked = check(example_bundle)
    assert checked.disagreements == ()
    assert checked.compared > 2_000


@pytest.mark.parametrize("spec", [CLOSED, OPEN, STORM, INVALID], ids=["closed", "open", "storm", "invalid"])
def test_every_kind_of_trial_agrees_with_itself(tmp_path: Path, spec: TrialSpec) -> None:
    assert found(bundle(tmp_path, [spec])) == []


def companions(change: Callable[[Json], object]) -> Callable[[Json], None]:
    """Adds a broker that uses 0.5 s of CPU in the window to every reading, then applies `change`."""

    def changed_result(result: Json) -> None:
        process = {"pid": 9, "rss_bytes": 1, "cpu_limit": 1.0, "throttled_periods": None, "periods": None}
        used = {"before": 0, "window_start": 100_000_000, "window_end": 600_000_000, "after": 600_000_000}
        for moment, cpu_ns in used.items():
            result["service"][moment]["companions"] = {"redis": process | {"cpu_ns": cpu_ns}}
        change(result)

    return changed_result


def test_the_usage_of_companions_counts_for_the_service_and_must_be_of_its_processes(tmp_path: Path) -> None:
    def honest(result: Json) -> None:
        result["figures"]["service_cpu_seconds"] += 0.5

    def restarted(result: Json) -> None:
        honest(result)
        result["service"]["after"]["companions"]["redis"]["pid"] = 10

    def description(name: str, change: Callable[[Json], object]) -> str:
        return " ".join(changed(tmp_path / name, CLOSED, companions(change)))

    assert "service_cpu_seconds is" in description("left-out", lambda _: None)
    assert "service_cpu_seconds is" not in description("honest", honest)
    assert "process changed" not in description("honest-again", honest)
    assert "process changed" in description("restarted", restarted)


def test_a_foreign_service_has_no_process_figures_and_checked_books(
    tmp_path: Path,
) -> None:
    process = ("pid", "cpu_ns", "rss_bytes", "cpu_limit")
    absent = ("service_cpu_seconds", "service_cpu_share", "service_cpu_seconds_per_million", "service_rss_bytes")

    def unread(result: Json) -> None:
        for one in result["service"].values():
            one.update(dict.fromkeys(process))
        result["figures"].update(dict.fromkeys((*absent, "service_bytes_per_connection")))
        result["bound_by"] = None

    root = bundle(tmp_path, [CLOSED], outside={"url": "ws://127.0.0.1:8080/wse", "metrics_address": "127.0.0.1:9100"})
    file = root / "trials" / CLOSED.folder / "result.json"
    edit(file, unread)
    edit(file.with_name("service.json"), lambda service: unread({"service": service["readings"], "figures": {}}))
    assert found(root) == []
    edit(file, lambda result: result["figures"].update(received_per_second=1.0))
    assert any(description.startswith("received_per_second is 1 but the counters say") for description in found(root))


def test_a_merged_histogram_that_lost_a_value_is_found(tmp_path: Path) -> None:
    description = changed(
        tmp_path, CLOSED, lambda result: result["histograms"].update(response_ns=histogram(lognormal(1e6, 0.5, 9_999)))
    )
    assert "response_ns: the merged histogram holds 9999 values, the workers' together 10000" in description


def test_a_merged_histogram_with_other_values_is_found(tmp_path: Path) -> None:
    description = changed(
        tmp_path, CLOSED, lambda result: result["histograms"].update(response_ns=histogram(lognormal(2e6, 0.5, 10_000)))
    )
    assert "response_ns: the merged histogram isn't the sum of the workers'" in description


def test_a_prettier_percentile_is_found(tmp_path: Path) -> None:
    description = changed(tmp_path, CLOSED, lambda result: result["percentiles"]["response_ns"].update(p99=1_000_000))
    assert any(one.startswith("p99 of response is 1000000 ns but the histogram says") for one in description)


def test_a_percentile_without_enough_samples_is_found(tmp_path: Path) -> None:
    description = changed(
        tmp_path, CLOSED, lambda result: result["percentiles"]["response_ns"].update({"p99.99": 9_000_000})
    )
    assert "p99.99 of response is 9000000 ns but the histogram says n/a" in description


@pytest.mark.parametrize(
    ("change", "description"),
    [
        (
            lambda r: r["books"]["equations"][1].update(right=5),
            "the terms of 'due = sent + unsent' add up to 10000, not 5",
        ),
        (lambda r: r["books"]["equations"][1].update(left=5), "it is called valid although its books don't balance"),
        (lambda r: r["messages"].update(delivered=9_999), "10000 messages were due but 9999 have an outcome"),
        (lambda r: r["messages"].update(unsent=3), "10000 were sent, 3 unsent and 10000 due"),
        (lambda r: r["connections"].update(open=99), "100 connections were attempted but 99 have an outcome"),
        (lambda r: r["connections"].update(open=99), "connections open: 99 in the result, 100 over the workers"),
        (
            lambda r: r["figures"].update(delivered_per_second=6000),
            "delivered_per_second is 6000 but the counters say 5000",
        ),
        (lambda r: r["figures"].update(worker_cpu_seconds=0.1), "worker_cpu_seconds is 0.1 but the counters say 1.1"),
        (lambda r: r.update(bound_by="neither"), "it is called bound by neither but what was looked at says service"),
        (lambda r: r.update(bound_by=None), "it is called bound by None but what was looked at says service"),
        (lambda r: r.update(run="another"), "result.json is of run another"),
        (lambda r: r["workers"].pop(), "1 workers are named but 2 left a file"),
        (lambda r: r["service"]["after"].update(pid=1), "it is called valid although the service's process changed"),
        (lambda r: r["service"]["after"].update(pid=1), "service.json and result.json have other readings"),
        (
            lambda r: r["books"]["connections"].update(compared=99),
            "0 of 99 connections are said to differ, counted again 0 of 100",
        ),
    ],
)
def test_a_doctored_result_is_found(tmp_path: Path, change: Callable[[Json], object], description: str) -> None:
    assert description in changed(tmp_path, CLOSED, change)


def checks(*reached: tuple[str, str, float]) -> list[Json]:
    """What was looked at: the CPU shares of `CLOSED`, and these sides, measures and shares."""
    of_cpu = [("service", "cpu", 0.97), ("generator", "cpu", 0.55)]
    limits = {"cpu": 0.9, "thread": 0.9, "quota": 0.1, "waiting": 0.1, "late": 0.05}
    return [
        {"side": side, "measure": measure, "share": share, "limit": limits[measure]}
        for side, measure, share in (*of_cpu, *reached)
    ]


@pytest.mark.parametrize(
    ("looked_at", "bound"),
    [
        ((), "service"),
        ((("generator", "thread", 0.95),), "both"),
        ((("generator", "thread", 0.95), ("generator", "waiting", 0.5)), "service"),
        ((("generator", "quota", 0.1),), "both"),
        ((("inference", "late", 0.05),), "inference"),
    ],
)
def test_what_bound_a_load_is_decided_again_from_what_was_looked_at(
    tmp_path: Path, looked_at: tuple[tuple[str, str, float], ...], bound: str
) -> None:
    def look(claimed: str) -> Callable[[Json], object]:
        return lambda result: result.update(bound_by=claimed, bound_checks=checks(*looked_at))

    assert changed(tmp_path / "right", CLOSED, look(bound)) == []
    wrong = changed(tmp_path / "wrong", CLOSED, look("neither"))
    assert wrong == [f"it is called bound by neither but what was looked at says {bound}"]


def test_a_limit_or_share_that_was_changed_is_found(tmp_path: Path) -> None:
    def change(**fields: float) -> Callable[[Json], object]:
        return lambda result: result.update(bound_checks=[{**checks()[0], **fields}, checks()[1]])

    assert changed(tmp_path / "limit", CLOSED, change(limit=0.95)) == ["its limit for cpu of the service is 0.95"]
    (description,) = changed(tmp_path / "share", CLOSED, change(share=0.91))
    assert description.endswith("in its figures and 0.91 where it is judged")


def test_a_drop_that_is_counted_as_delivered_is_found_again(tmp_path: Path) -> None:
    def lie(file: Json) -> None:
        file["connections"][7]["application"]["sequence_sum"] += 1

    description = changed(tmp_path, CLOSED, lie, "service.json")
    assert description == ["0 of 100 connections are said to differ, counted again 1 of 100"]


def test_a_connection_of_another_client_is_not_a_mismatch(tmp_path: Path) -> None:
    def visit(file: Json) -> None:
        file["connections"].append(file["connections"][0] | {"id": "visitor", "received": 5})

    differ = "0 of 100 connections are said to differ, counted again 1 of 100"
    assert changed(tmp_path, CLOSED, visit, "service.json") == [differ]
    (service,) = tmp_path.glob("**/service.json")
    judged_by = json.loads((JUDGED / "throughput-open-none/trial.json").read_text()) | {"others": ["visitor"]}
    service.with_name("trial.json").write_text(json.dumps(judged_by))
    (run,) = tmp_path.glob("**/run.json")
    assert found(run.parent) == []


@pytest.mark.parametrize(
    ("change", "description"),
    [
        (lambda r: r.update(verdict=None), "it has objectives but no verdict"),
        (lambda r: r["verdict"].update(passed=False), "its verdict contradicts its objectives"),
        (
            lambda r: r["verdict"]["objectives"][0]["objective"].update(at_most=99.0),
            "its verdict is on other objectives",
        ),
        (
            lambda r: r["verdict"]["objectives"][0].update(seen=1.0),
            "p99 of response ≤ 10 ms: seen 1.0 ms but the histogram",
        ),
        (
            lambda r: r["verdict"]["objectives"][0].update(seen=50.0),
            "p99 of response ≤ 10 ms: seen 50.0, called passed",
        ),
        (lambda r: r.update(bound_by="service"), "it is called bound by service but what was looked at says None"),
    ],
)
def test_a_doctored_verdict_is_found(tmp_path: Path, change: Callable[[Json], object], description: str) -> None:
    assert any(one.startswith(description) for one in changed(tmp_path, OPEN, change))


def test_a_late_generator_that_was_called_valid_is_found(tmp_path: Path) -> None:
    late = TrialSpec(**{**OPEN.__dict__, "latencies": {"response_ns": (1e6, 0.5), "delay_ns": (30e6, 0.8)}})
    description = found(bundle(tmp_path, [late]))
    assert any(one.startswith("it is called valid although p99 of its lateness is") for one in description)


def test_an_objective_of_time_allows_the_generator_a_twentieth_of_it(tmp_path: Path) -> None:
    latencies = {"response_ns": (1e6, 0.5), "delay_ns": (2e6, 0.8)}
    wide = TrialSpec(**{**OPEN.__dict__, "latencies": latencies, "objectives": (p99_at_most(1_000.0),)})
    assert found(bundle(tmp_path, [wide])) == []


def test_an_unsent_schedule_that_was_called_valid_is_found(tmp_path: Path) -> None:
    description = changed(tmp_path, OPEN, lambda worker: worker["window"].update(due=9_000), "workers/0.json")
    assert any("of the schedule was sent" in one for one in description)


def test_an_invalid_trial_with_a_verdict_is_found(tmp_path: Path) -> None:
    description = changed(tmp_path, INVALID, lambda result: result.update(verdict={"passed": True, "objectives": []}))
    assert "it is invalid and yet has a verdict" in description


def test_run_and_result_must_agree(tmp_path: Path) -> None:
    root = bundle(tmp_path, [CLOSED])
    edit(root / "run.json", lambda run: run["trials"][0]["state"].update(passed=True))
    assert found(root) == ["run.json and result.json disagree on the verdict"]


def test_a_finished_run_with_pending_trials_is_found(tmp_path: Path) -> None:
    root = bundle(tmp_path, [TrialSpec(state={"state": "pending"})])
    assert found(root) == ["it is finished but these trials are not: wse-server/throughput/standard/100-p1-r1"]


def test_a_finished_run_may_have_trials_under_which_the_service_ended(tmp_path: Path) -> None:
    state = {"state": "crashed", "cause": "service_crashed", "reason": "it exited with status 9"}
    assert found(bundle(tmp_path, [CLOSED, TrialSpec(repeat=2, state=state)])) == []


def test_a_missing_result_is_found(tmp_path: Path) -> None:
    root = bundle(tmp_path, [CLOSED])
    (root / "trials" / CLOSED.folder / "result.json").unlink()
    assert found(root) == ["run.json and result.json disagree on whether it ended"]


def test_a_trial_of_a_search_is_judged_by_the_window_that_the_search_chose(tmp_path: Path) -> None:
    root = bundle(tmp_path, [CLOSED])
    file = root / "trials" / CLOSED.folder / "result.json"

    def read_late(result: Json) -> None:
        """Moves the reading at the window's end by a tenth of the window; rates use the time between readings."""
        start, end = (result["service"][f"window_{edge}"] for edge in ("start", "end"))
        end["unix_ns"] = start["unix_ns"] + int((end["unix_ns"] - start["unix_ns"]) * 1.1)
        seconds = (end["unix_ns"] - start["unix_ns"]) / 1e9
        received = end["stats"]["messages"]["received"] - start["stats"]["messages"]["received"]
        result["figures"]["received_per_second"] = received / seconds
        result["figures"]["delivered_per_second"] /= 1.1

    edit(file, read_late)
    edit(
        file.with_name("service.json"),
        lambda service: service.update(readings=json.loads(file.read_text(encoding="utf-8"))["service"]),
    )
    assert found(root) == []

    def of_a_long_plan(run: Json) -> None:
        run["plan"]["window_seconds"] = 45.0
        run["trials"][0]["search"] = {"step": "bounds", "window_seconds": CLOSED.seconds, "service_ended": False}

    edit(root / "run.json", of_a_long_plan)
    assert found(root) == []
