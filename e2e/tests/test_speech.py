"""A speech-to-text gateway, with the inference simulator in a pod of its own, climbed like any other service."""

from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from release import Release

SESSIONS = 6
WORKERS = 2
# Audio frames are due continuously, a partial once a second.
PLAN = {
    "services": ["rust-sync"],
    "warmup_seconds": 2,
    "window_seconds": 4,
    "ladders": [
        {
            "workload": "sessions",
            "tiers": [SESSIONS],
            "load": {"model": "sessions", "spread_ms": 500},
            "message": {"format": "pcm", "size_bytes": 640},
            "samples": True,
            "objectives": [{"figure": "error_share", "at_most": 0}],
        }
    ],
}


@pytest.fixture(scope="module")
def bundle(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle of the run `speech`."""
    release.upgrade({"run": {"id": "speech"}, "plan": PLAN})
    release.until_run_ends("speech")
    release.until_restored()
    return Bundle(release.fetch("speech", tmp_path_factory.mktemp("speech")))


@pytest.fixture
def trial(bundle: Bundle) -> Path:
    """The folder of the bundle's only trial."""
    assert bundle.valid() == 1, bundle.run()["trials"]
    [trial] = bundle.trials()
    return trial


@pytest.fixture
def result(trial: Path) -> Any:
    """The result of the trial."""
    return read(trial / "result.json")


def test_every_frame_is_covered_by_a_partial_whose_content_is_right(result: Any) -> None:
    messages = result["messages"]
    assert messages["sent"] > 0
    assert messages["delivered"] == messages["sent"]
    assert result["verdict"]["passed"]
    assert result["percentiles"]["newest_ns"]["p50"] > 0


def test_the_books_of_gateway_and_inference_balance(result: Any) -> None:
    assert all(equation["left"] == equation["right"] for equation in result["books"]["equations"])
    inference = result["service"]["after"]["stats"]["inference"]
    assert inference["requests"] == inference["answered"] > 0


def test_the_protocol_held_before_and_after(trial: Path) -> None:
    workers = [read(path) for path in sorted((trial / "workers").glob("*.json"))]
    assert len(workers) == WORKERS
    checked = workers[0]["conformance"]
    assert (checked["before"], checked["after"]) == ([], [])


def test_rows_of_both_workers_were_uploaded(trial: Path) -> None:
    assert len(list((trial / "workers").glob("*.samples.csv.zst"))) == WORKERS


def test_the_inference_behind_it_is_in_the_evidence(bundle: Bundle, trial: Path, result: Any) -> None:
    [pod] = [pod for pod in result["pods"] if pod["role"] == "inference"]
    assert pod["qos_class"] == "Guaranteed"
    assert pod["image_digest"]
    used = result["service"]["after"]["inference"]["cpu_ns"] - result["service"]["before"]["inference"]["cpu_ns"]
    assert used > 0
    assert "inference-sim" in bundle.run()["versions"]
    assert (trial / "inference.log").exists()
