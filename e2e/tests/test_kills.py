"""A process is killed during a trial: the trial is repeated, others are kept, and the operator restores everything."""

from pathlib import Path

import pytest
from bundle import Bundle
from kill import kill_container
from release import Release

# Long enough to kill a process in the middle of the window.
WINDOW_SECONDS = 6
TIERS = [10, 20]


# A worker also ends, and its trial is repeated, in test_disruptions.
@pytest.mark.parametrize("killed", ["operator", pytest.param("worker", marks=pytest.mark.long), "service"])
def test_a_kill_during_a_trial_costs_only_that_trial(release: Release, tmp_path: Path, killed: str) -> None:
    run = f"{killed}-killed"
    release.upgrade({"run": {"id": run}, "plan": {"window_seconds": WINDOW_SECONDS}})
    # In the second tier, so that there is a finished trial that must be kept.
    before = release.until_trial(run, TIERS[1])
    names = kill_container(release.cluster, release.ready_pod(killed), killed)

    after = release.until_run_ends(run)
    release.until_restored()
    bundle = Bundle(release.fetch(run, tmp_path))
    assert bundle.valid() == len(TIERS), f"trials: {bundle.run()['trials']}"
    assert bundle.attempts() == [1, 2]
    assert after["trials"][0] == before["trials"][0]
    if killed != "operator":
        assert after["interruptions"] == 1
        description = after["last_problem"]["description"]
        assert f"{killed} " in description
        assert any(name in description for name in names), description
        assert description in release.ladder("status")
        # The operator's pod was started for this run, so its Events belong to the run.
        [event] = release.events("TrialInterrupted")
        assert event["type"] == "Warning"
        assert f"/{TIERS[1]}-p1-r1" in event["note"]
        assert description.rpartition("repeated: ")[2] in event["note"]
