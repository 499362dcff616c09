"""What tests check of a run whose only trial was disturbed."""

from collections import Counter
from pathlib import Path

from bundle import Bundle
from release import Release

# A node may have to come back first.
RUN_SECONDS = 200


def is_repeated(release: Release, run: str, work: Path) -> None:
    """Checks that the run ends with a valid trial, which was measured again after what cut it off, and only then.

    It need not be the second attempt: starting workers on a node that is still away is one, too.
    """
    release.until_run_ends(run, RUN_SECONDS)
    release.until_restored()
    bundle = Bundle(release.fetch(run, work))
    assert bundle.valid() == 1, bundle.run()["trials"]
    steps = Counter(entry["step"] for entry in bundle.timeline())
    assert (steps["trial"], bundle.attempts()[0] > 1) == (1, True), bundle.timeline()
    # An operator that is lost itself can't write down what it was doing.
    assert steps["interrupted"] <= 1, bundle.timeline()
