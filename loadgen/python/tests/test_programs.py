"""The three programs against real services: their output, their bundles, and faults that they must detect."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_format.meaning import OF_BUSY_MACHINES
from bench_format.schemas import BookKeeping, TrialFile
from bench_format.wire import decode
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.load import read_bundle

RunBench = Callable[..., subprocess.CompletedProcess[str]]

# On few CPUs, a dozen trials with as many processes take longer than the usual time limit of a test.
pytestmark = pytest.mark.timeout(180)

SHORT = ("--duration", "0.3", "--warmup", "0.1")


def outcomes(printed: str) -> list[dict[str, Any]]:
    """Parses the programs' JSON output."""
    found: list[dict[str, Any]] = json.loads(printed)
    return found


def assert_accounted(outcome: dict[str, Any]) -> None:
    """Asserts that a trial has a result in which every message has an outcome."""
    result = outcome["result"]
    assert result is not None, outcome["problems"]
    assert {reason["kind"] for reason in result["validity"].get("reasons", [])} <= OF_BUSY_MACHINES, outcome["problems"]
    assert result["connections"]["failed"] == {}
    if result["witness"] == "application":
        assert result["messages"]["delivered"] == result["messages"]["sent"] > 0


@pytest.mark.parametrize(
    ("program", "flags", "trials"),
    [
        ("single_client", [], 13),
        ("multiprocess", ["--workers", "3"], 12),
        ("brutal", ["--connections", "4"], 13),
    ],
)
def test_every_message_is_accounted_for_and_the_bundle_agrees_with_itself(
    program: str,
    flags: list[str],
    trials: int,
    wse: Callable[[str], list[str]],
    bench: RunBench,
    tmp_path: Path,
) -> None:
    run = bench(program, *wse("batch"), *SHORT, *flags, "--results", str(tmp_path), "--output", "json")
    found = outcomes(run.stdout)
    assert len(found) == trials
    for outcome in found:
        assert_accounted(outcome)
    (folder,) = tmp_path.iterdir()
    bundle = read_bundle(folder)
    assert len(bundle.trials) == trials
    assert check(bundle).disagreements == ()
    for trial in bundle.trials:
        file = folder / "trials" / trial.name / "trial.json"
        judged = decode(TrialFile, json.loads(file.read_text()), "")
        assert (judged.trial, judged.workers, judged.keeping) == (trial.id, len(trial.workers), BookKeeping.CONNECTIONS)


def test_connections_that_share_a_process_balance_too(wse: Callable[[str], list[str]], bench: RunBench) -> None:
    # Twelve connections in two event loops, for the flood as well.
    flags = ["--tiers", "12", "--processes", "2", "--tests", "1,2,3,4,7", "--output", "json"]
    for outcome in outcomes(bench("brutal", *wse("dict"), *SHORT, *flags).stdout):
        assert_accounted(outcome)
        if outcome["test"] == "throughput":
            assert len(outcome["result"]["workers"]) == 2
            assert len(outcome["result"]["books"]["equations"]) > 5


def test_without_an_application_there_is_no_witness_and_no_throughput(
    wse: Callable[[str], list[str]], bench: RunBench
) -> None:
    run = bench("single_client", *wse("discard"), *SHORT, "--tests", "throughput", "--output", "json")
    (outcome,) = outcomes(run.stdout)
    result = outcome["result"]
    assert (result["witness"], result["figures"]["delivered_per_second"]) == ("none", None)
    assert result["figures"]["received_per_second"] > 0
    assert result["messages"]["dropped"]["discarded"] > 0


def test_a_counted_drop_is_an_outcome(flawed: Callable[[str], list[str]], bench: RunBench) -> None:
    run = bench("single_client", *flawed("drop"), *SHORT, "--tests", "throughput", "--output", "json")
    (outcome,) = outcomes(run.stdout)
    messages = outcome["result"]["messages"]
    assert messages["dropped"]["self_test"] > 0
    assert messages["lost"] == 0
    assert {reason["kind"] for reason in outcome["result"]["validity"].get("reasons", [])} <= OF_BUSY_MACHINES, outcome[
        "problems"
    ]


@pytest.mark.parametrize("flaw", ["liar", "silent-drop"])
def test_a_service_that_hides_a_drop_is_caught(flaw: str, flawed: Callable[[str], list[str]], bench: RunBench) -> None:
    run = bench("single_client", *flawed(flaw), *SHORT, "--tests", "throughput", "--drain", "1", "--output", "json")
    (outcome,) = outcomes(run.stdout)
    assert run.returncode == 1
    assert outcome["result"]["validity"]["reasons"][0]["kind"] == "unaccounted"


@pytest.mark.parametrize(("flag", "variable"), [("--secret", "WSE_BENCH_SECRET"), ("--token", "WSE_BENCH_TOKEN")])
def test_a_secret_on_the_command_line_is_refused_with_the_variable_to_set(
    flag: str, variable: str, bench: RunBench
) -> None:
    for arguments in ([flag, "s3cret"], [f"{flag}=s3cret"], [flag]):
        refused = bench("single_client", *arguments)
        assert (refused.returncode, f"set {variable} instead" in refused.stderr) == (2, True)
        assert "s3cret" not in refused.stderr


def test_mistakes_name_where_to_look(
    wse: Callable[[str], list[str]], bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = wse("batch")
    monkeypatch.setenv("WSE_BENCH_SECRET", "another-secret-of-at-least-32-bytes")
    refused = bench("single_client", *found)
    assert refused.returncode == 1
    hint = "refuses connections: closed 4401; is it started, and is WSE_BENCH_SECRET or WSE_BENCH_TOKEN its own?"
    assert hint in refused.stderr
    absent = bench("multiprocess", "--port", "1")
    assert (absent.returncode, "refuses connections: econnrefused" in absent.stderr) == (1, True)
    misspelt = bench("brutal", "--tests", "fanout")
    assert misspelt.returncode == 2
    assert "there is no test 'fanout'; known are connection-storm" in misspelt.stderr
