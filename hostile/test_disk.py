"""A disk that is full at some write of a run: the error names the file, and the run can be resumed."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.ladder_runs import PLAN, RUN_ID, Climb, finished_files, no_file_changed
from hostile.target import BIN, CHECKOUT

# Mounts a small disk in a mount namespace of its own, runs ladder on it and copies the content at the end. Exit code 99
# means that the disk couldn't be mounted.
SCRIPT = """
mount -t tmpfs -o size="$4" tmpfs "$1/disk" || exit 99
"$2" run "$3" --no-report --no-conformance --run-id "$5" --results "$1/disk" > "$1/output" 2>&1
code=$?
cp -a "$1/disk/." "$1/results"
exit $code
"""


@pytest.mark.parametrize("size", ["16k", "40k", "64k", "96k", "160k", "256k"])
def test_a_full_disk_loses_no_finished_trial(
    tmp_path: Path, climb: Callable[..., Climb], count: Callable[[str, int], None], size: str
) -> None:
    for name in ("disk", "results"):
        (tmp_path / name).mkdir()
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    command = ("unshare", "--mount", *as_root, "sh", "-c", SCRIPT, "sh")
    arguments = (str(tmp_path), str(BIN / "ladder"), str(PLAN), size, RUN_ID)
    code = subprocess.run((*command, *arguments), cwd=CHECKOUT, stdin=subprocess.DEVNULL, timeout=120).returncode
    assert code != 99, "the small disk can't be mounted here"
    count("faults", 1)
    output = (tmp_path / "output").read_text()
    bundle = tmp_path / "results" / RUN_ID
    if code != 0:
        assert "No space left on device" in output, output
        assert "failed to write" in output or "failed to create" in output, output
    if not (bundle / "run.json").exists():
        # It was full before the run began: nothing was measured.
        assert not finished_files(bundle)
        return
    kept = finished_files(bundle)
    resumed = climb(resume=True)
    assert resumed.wait() in (0, 2), resumed.printed()
    assert resumed.states() == ["finished"] * 4, resumed.printed()
    no_file_changed(kept, finished_files(bundle))
