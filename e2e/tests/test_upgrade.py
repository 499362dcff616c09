"""Helm upgrades a release during a run: Helm 3 reverts the operator's changes, Helm 4 refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bundle import Bundle
from cluster import Cluster
from release import HELM_3, Release

TIERS = [10, 20]
# Long enough for an upgrade in the middle of the window.
WINDOW_SECONDS = 8


def values(run: str) -> dict[str, object]:
    return {"run": {"id": run}, "plan": {"window_seconds": WINDOW_SECONDS}}


def test_helm_4_refuses_to_upgrade_in_the_middle_of_a_run_and_nothing_is_disturbed(
    release: Release, tmp_path: Path
) -> None:
    release.upgrade(values("refused"))
    release.until_trial("refused", TIERS[1])
    done = release.cluster.attempt(*release.helm_command("upgrade", values("refused")), seconds=120)
    assert done.returncode != 0
    assert "conflict" in done.stderr
    release.until_run_ends("refused")
    release.until_restored()
    bundle = Bundle(release.fetch("refused", tmp_path))
    assert bundle.attempts() == [1, 1]
    # The operator has released its fields, so the next upgrade succeeds.
    release.upgrade({})


@pytest.fixture
def by_helm_3(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A separate release: Helm 4 keeps the apply method of a release that Helm 3 installed, so they can't share one."""
    release = Release(cluster, "three", HELM_3, tmp_path_factory.mktemp("three"))
    release.install()
    yield release
    release.uninstall()


@pytest.mark.long
def test_an_upgrade_by_helm_3_interrupts_the_trial_and_it_is_repeated(by_helm_3: Release, tmp_path: Path) -> None:
    by_helm_3.upgrade(values("interrupted"))
    by_helm_3.until_trial("interrupted", TIERS[1])
    by_helm_3.upgrade(values("interrupted"))
    by_helm_3.until_run_ends("interrupted")
    by_helm_3.until_restored()
    bundle = Bundle(by_helm_3.fetch("interrupted", tmp_path))
    assert bundle.valid() == len(TIERS)
    assert bundle.attempts() == [1, 2]
