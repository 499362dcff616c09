"""A wall clock that jumps by a day during a run: at most the current trial is lost, and no finished trial changes.

The jump is simulated by a preloaded library (`step_clock.c`), so the clock of the machine stays as it is.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.ladder_runs import Climb, finished_files, no_file_changed
from hostile.target import until


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library that makes the clock jump."""
    path = tmp_path_factory.mktemp("clock") / "step_clock.so"
    source = Path(__file__).with_name("step_clock.c")
    subprocess.run(("cc", "-shared", "-fPIC", "-O1", "-o", str(path), str(source), "-ldl"), check=True)
    return path


@pytest.mark.parametrize("seconds", [-86_400, 86_400])
def test_a_jump_of_the_clock_invalidates_at_most_one_trial(
    tmp_path: Path, climb: Callable[..., Climb], library: Path, count: Callable[[str, int], None], seconds: int
) -> None:
    step = tmp_path / "step"
    running = climb(LD_PRELOAD=str(library), CLOCK_STEP=str(step))
    until(lambda: running.finished() >= 1, "the first trial has a result")
    first = finished_files(running.bundle)
    until(lambda: "wse-bench" in running.family(), "the worker runs")
    step.write_text(str(seconds))
    count("faults", 1)
    assert running.wait() in (0, 2), running.printed()
    states = running.states()
    assert running.finished() >= 3, (states, running.printed())
    assert "pending" not in states, states
    no_file_changed(first, finished_files(running.bundle))
