"""The experiment on `ladder compare`: its slowed commit, and the table of its counts."""

import subprocess
from typing import Any

import compare_experiment
import pytest


def result(verdict: str, pairs: int) -> dict[str, Any]:
    """A comparison as `ladder compare --json` prints it, as far as the table reads it."""
    figure = {"figure": "cpu-per-million", "verdict": verdict, "pairs": pairs}
    return {"comparison": {"progress": {"looks": [{"figures": [figure]}]}}}


def test_the_slowed_commit_differs_in_one_function_and_is_the_same_each_time() -> None:
    head = compare_experiment.git("rev-parse", "HEAD")
    slowed = compare_experiment.slowed_commit(head, 30)
    assert slowed == compare_experiment.slowed_commit(head, 30)
    assert slowed != compare_experiment.slowed_commit(head, 31)
    command = ["git", "diff", "--numstat", head, slowed]
    changed = subprocess.run(command, cwd=compare_experiment.ROOT, capture_output=True, text=True, check=True).stdout
    assert changed.split() == ["1", "0", compare_experiment.SLOWED]


def test_a_source_without_the_function_is_refused() -> None:
    with pytest.raises(ValueError, match="update END"):
        compare_experiment.slower("fn other() {}", 30)


def test_counts_have_their_exact_intervals() -> None:
    found = {"itself": [result("same", 9)] * 19 + [result("differs", 29)], "unslowed": [result("differs", 11)] * 20}
    text = compare_experiment.table(found)
    # Clopper-Pearson of 1 of 20 and of 20 of 20.
    assert "| itself | differs | 1 of 20 | 5% (0% to 25%) | 10.0 |" in text
    assert "| unslowed | differs | 20 of 20 | 100% (83% to 100%) | 11.0 |" in text
