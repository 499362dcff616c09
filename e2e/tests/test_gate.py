"""What a pipeline relies on: `helm test`, whose exit code is the verdict, and isolation that is required."""

import subprocess
from pathlib import Path

from bundle import Bundle, read
from release import RUN_SECONDS, Release

# No service of this size delivers so much.
UNREACHABLE = {"figure": "delivered_per_second", "at_least": 1_000_000_000}
LADDER = {
    "workload": "throughput",
    "variant": "batch",
    "tiers": [10],
    "load": {"model": "open", "rate_per_second": 200},
    "objectives": [UNREACHABLE],
}


def helm_test(release: Release) -> subprocess.CompletedProcess[str]:
    """Runs `helm test` as users do, with the logs of its pods."""
    common = ["--kubeconfig", str(release.cluster.kubeconfig), "--namespace", release.cluster.namespace]
    command = [release.helm, "test", release.name, *common, "--logs", "--timeout", f"{RUN_SECONDS}s"]
    return release.cluster.attempt(*command, seconds=RUN_SECONDS + 30)


def test_helm_test_passes_when_every_objective_is_met(release: Release) -> None:
    release.upgrade({"run": {"id": "met"}})
    tested = helm_test(release)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert release.status()["state"] == "finished"
    release.until_restored()


def test_helm_test_fails_and_says_which_objective_was_missed(release: Release) -> None:
    release.upgrade({"run": {"id": "missed"}, "plan": {"ladders": [LADDER]}})
    tested = helm_test(release)
    assert tested.returncode != 0
    missed = "fail    wse-server/throughput/batch/10-p1-r1: delivered_per_second at least 1000000000, measured "
    assert missed in tested.stdout + tested.stderr, tested.stdout + tested.stderr
    release.until_restored()


def test_isolation_that_is_required_and_missing_makes_the_trial_invalid_with_the_way_to_get_it(
    release: Release, tmp_path: Path
) -> None:
    # A third of a CPU is never a service's own.
    release.upgrade({"run": {"id": "together"}, "plan": {"ladders": [LADDER]}, "isolation": {"require": "cpuset"}})
    release.until_run_ends("together")
    release.until_restored()
    [trial] = Bundle(release.fetch("together", tmp_path)).trials()
    reasons = {reason["kind"]: reason["detail"] for reason in read(trial / "result.json")["validity"]["reasons"]}
    assert "only whole CPUs can be its own: set plan.cpu.service.cpus" in reasons["isolation"], reasons
