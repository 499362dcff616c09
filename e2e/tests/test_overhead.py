"""What a run takes besides its trials, and what its operator needs when idle; printed at the end of the tests."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle
from cluster import Cluster
from kill import processes_of
from measured import FIGURES
from release import HELM_4, Release

IDLE_MEGABYTES = 20
PLAN = {
    "repeats": 2,
    "window_seconds": 1,
    "ladders": [
        {
            "workload": "throughput",
            "variant": "batch",
            "tiers": [10, 20],
            "load": {"model": "open", "rate_per_second": 200},
            "service_env": {"DELIVERY": "batch"},
        }
    ],
}


@pytest.fixture
def fresh(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A release that is not installed yet; it is uninstalled afterwards."""
    release = Release(cluster, "fresh", HELM_4, tmp_path)
    yield release
    release.uninstall()


def test_the_time_around_trials_and_the_idle_operators_memory_are_reported(fresh: Release, tmp_path: Path) -> None:
    installed_ns = time.time_ns()
    fresh.install({"run": {"id": "overhead"}, "plan": PLAN})
    fresh.until_run_ends("overhead")
    fresh.until_restored()
    bundle = Bundle(fresh.fetch("overhead", tmp_path))
    assert bundle.valid() == 4, bundle.run()["trials"]
    [first, second, third, fourth] = trials(bundle)
    gaps = {
        "from helm install to the first trial": (installed_ns, first["start_unix_ns"]),
        "between two trials of a tier": (first["end_unix_ns"], second["start_unix_ns"]),
        "between two tiers": (second["end_unix_ns"], third["start_unix_ns"]),
        "between two trials of the last tier": (third["end_unix_ns"], fourth["start_unix_ns"]),
    }
    FIGURES.extend(f"{name}: {(until - since) / 1e9:.2f} s" for name, (since, until) in gaps.items())
    assert all(until >= since for since, until in gaps.values()), gaps
    processes = processes_of(fresh.ready_pod("operator"), "operator")
    if processes:
        megabytes = resident_megabytes(min(processes))
        FIGURES.append(f"memory of the operator after its run: {megabytes:.1f} MB")
        assert megabytes <= IDLE_MEGABYTES


def trials(bundle: Bundle) -> list[Any]:
    """The trials in the timeline, in their order."""
    lines = (bundle.folder / "timeline.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["step"] == "trial"]


def resident_megabytes(process: int) -> float:
    """The memory of a process that no file on disk backs, in megabytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024 / 1e6
    raise AssertionError(f"process {process} has no memory")
