"""The report made in the cluster: after a run, beside the operator, and in no bundle."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bundle import Bundle
from cluster import name_of
from release import LADDER, Release
from waiting import until

RUN = "reported"
# The container gets a part of a CPU, and looks every ten seconds.
REPORT_SECONDS = 180


@pytest.fixture(scope="module")
def reported(release: Release) -> Iterator[str]:
    """The page of the run's report."""
    release.upgrade({"run": {"id": RUN}, "report": {"enabled": True}})
    release.until_run_ends(RUN)
    release.until_restored()

    def has_report() -> bool:
        return any(run["id"] == RUN and run["report"] for run in release.web("/api/runs"))

    until(f"the report of run {RUN}", has_report, REPORT_SECONDS, lambda: log(release))
    yield release.text(f"/results/{RUN}/report/")
    # Its container would take CPU beside other tests' measurements.
    release.upgrade({"run": {"id": RUN}})


def log(release: Release) -> str:
    """What the report's container wrote."""
    return release.cluster.kubectl("logs", name_of(release.ready_pod("operator")), "--container", "report")


def test_the_report_of_an_ended_run_is_served(release: Release, reported: str) -> None:
    assert "<html" in reported
    assert RUN in reported
    assert release.text(f"/results/{RUN}/report/report.html") == reported
    assert f"made the report of {RUN}" in log(release)


def test_the_bundle_has_no_part_of_it(release: Release, reported: str, tmp_path: Path) -> None:
    assert reported
    bundle = Bundle(release.fetch(RUN, tmp_path))
    assert not [path for path in bundle.files() if "report" in path]
    release.cluster.run(str(LADDER), "verify", str(bundle.folder))


def test_its_container_can_write_neither_to_bundles_nor_to_the_cluster(release: Release, reported: str) -> None:
    assert reported
    pod = name_of(release.ready_pod("operator"))
    tried = f"touch /results/{RUN}/x; cat /var/run/secrets/kubernetes.io/serviceaccount/token"
    command = release.cluster.kubectl_command("exec", pod, "--container", "report", "--", "sh", "-c", tried)
    done = release.cluster.attempt(*command)
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr
    assert "serviceaccount/token" in done.stderr
