"""Another run, or another plan, in the middle of a run: what was measured stays, and a run keeps its plan."""

from pathlib import Path

from bundle import Bundle
from release import Release

TIERS = [10, 20]
# Long enough for an upgrade in the middle of the window.
WINDOW_SECONDS = 8
# The operator owns replicas and `suspend` during a run, so Helm 4 refuses otherwise (test_upgrade.py).
FORCE = "--force-conflicts"


def values(run: str, window_seconds: int = WINDOW_SECONDS) -> dict[str, object]:
    return {"run": {"id": run}, "plan": {"window_seconds": window_seconds}}


def test_a_new_run_replaces_the_current_one_which_keeps_its_finished_trials(release: Release, tmp_path: Path) -> None:
    release.upgrade(values("replaced"))
    release.until_trial("replaced", TIERS[1])
    release.upgrade(values("replacing"), FORCE)
    release.until_run_ends("replacing")
    release.until_restored()
    old, new = (Bundle(release.fetch(run, tmp_path)) for run in ("replaced", "replacing"))
    assert old.run()["state"] == "superseded"
    assert old.run()["trials"][0]["state"]["state"] == "finished"
    assert new.valid() == len(TIERS)
    assert new.attempts() == [1, 1]


def test_another_plan_under_the_same_id_starts_nothing_and_is_reported(release: Release, tmp_path: Path) -> None:
    release.upgrade(values("kept"))
    release.until_trial("kept", TIERS[1])
    release.upgrade(values("kept", WINDOW_SECONDS + 1), FORCE)
    release.until_status_prints("run kept was begun with another plan and is superseded; set a new run.id")
    release.until_restored()
    kept = Bundle(release.fetch("kept", tmp_path)).run()
    assert kept["state"] == "superseded"
    assert kept["plan"]["window_seconds"] == WINDOW_SECONDS
    assert kept["trials"][0]["state"]["state"] == "finished"
