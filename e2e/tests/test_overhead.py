"""What a run takes besides its trials, and what its operator needs when idle; printed at the end of the tests."""

import time
from collections.abc import Iterator
from pathlib import Path

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
    seconds = (first_trial_ns(bundle) - installed_ns) / 1e9
    assert seconds > 0
    FIGURES.append(f"from helm install to the first trial: {seconds:.1f} s")
    FIGURES.append(fresh.status()["overhead"])
    processes = processes_of(fresh.ready_pod("operator"), "operator")
    if processes:
        megabytes = resident_megabytes(min(processes))
        FIGURES.append(f"memory of the operator after its run: {megabytes:.1f} MB")
        assert megabytes <= IDLE_MEGABYTES


def first_trial_ns(bundle: Bundle) -> int:
    """When the first trial in the timeline began, in nanoseconds since the Unix epoch."""
    began: int = next(entry["start_unix_ns"] for entry in bundle.timeline() if entry["step"] == "trial")
    return began


def resident_megabytes(process: int) -> float:
    """The memory of a process that no file on disk backs, in megabytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024 / 1e6
    raise AssertionError(f"process {process} has no memory")
