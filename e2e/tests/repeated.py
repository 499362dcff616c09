"""What tests check of a run whose only trial was disturbed."""

from pathlib import Path

from bundle import Bundle
from release import Release

# A node may have to come back first.
RUN_SECONDS = 200


def is_repeated(release: Release, run: str, work: Path) -> None:
    """Checks that the run ends with a valid trial, which was the second attempt."""
    release.until_run_ends(run, RUN_SECONDS)
    release.until_restored()
    bundle = Bundle(release.fetch(run, work))
    assert bundle.valid() == 1, bundle.run()["trials"]
    assert bundle.attempts() == [2]
