"""The experiment on `ladder compare`: its slowed commit, and the table of its counts."""

import subprocess
from pathlib import Path
from typing import Any

import compare_experiment
import pytest
import result_archive
from readme_highlights import replaced


def result(verdict: str, pairs: int, ratio: float = 1.0) -> dict[str, Any]:
    """A comparison as `ladder compare --json` prints it, as far as the table reads it."""
    figure = {"figure": "cpu-per-million", "verdict": verdict, "pairs": pairs, "ratio": ratio}
    return {"comparison": {"progress": {"looks": [{"figures": [figure]}]}}}


def test_the_slowed_commit_differs_in_one_function_and_is_the_same_each_time() -> None:
    head = compare_experiment.git("rev-parse", "HEAD")
    slowed = compare_experiment.slowed_commit(head, 30)
    assert slowed == compare_experiment.slowed_commit(head, 30)
    assert slowed != compare_experiment.slowed_commit(head, 31)
    command = ["git", "diff", "--numstat", head, slowed]
    changed = subprocess.run(command, cwd=compare_experiment.ROOT, capture_output=True, text=True, check=True).stdout
    assert changed.split() == ["1", "0", compare_experiment.SLOWED]


def test_the_ratio_is_that_of_all_pairs() -> None:
    text = compare_experiment.table({"unslowed": [result("differs", 10, 1.1), result("same", 30, 1.0)]})
    # 1.1 to the power of 10 of 40 pairs.
    assert "| the engine as it is | 1.024 | 20.0 | same within 5 % | 1 of 2 |" in text


def test_a_source_without_the_function_is_refused() -> None:
    with pytest.raises(ValueError, match="update END"):
        compare_experiment.slower("fn other() {}", 30)


def test_counts_have_their_exact_intervals() -> None:
    found = {
        "itself": [result("same", 9)] * 19 + [result("differs", 29)],
        "unslowed": [result("differs", 11, 1.05)] * 20,
    }
    text = compare_experiment.table(found)
    # Clopper-Pearson of 1 of 20 and of 20 of 20.
    assert "| itself | 1.000 | 10.0 | differs | 1 of 20 | 5 % (0 % to 25 %) |" in text
    assert "| the engine as it is | 1.050 | 11.0 | differs | 20 of 20 | 100 % (83 % to 100 %) |" in text


def test_the_table_in_the_docs_is_what_the_archive_says(tmp_path: Path) -> None:
    folder = result_archive.unpack(compare_experiment.PART, tmp_path)
    page = compare_experiment.METHODOLOGY.read_text()
    assert replaced(page, compare_experiment.PART, compare_experiment.block(folder)) == page


def test_what_is_kept_of_a_comparison_says_on_which_machine_it_was_and_not_in_which_folder(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"machines": [{"cpu_model": "a CPU"}]}')
    kept = compare_experiment.with_machine({"bundle": str(tmp_path), "comparison": {}})
    assert kept == {"comparison": {}, "machine": {"cpu_model": "a CPU"}}
