"""The tables of docs/RESULTS.md that this tool makes or takes from a report: capacities, and gateways on two CPUs."""

import json
from pathlib import Path

import pytest
import readme_results


def searched(folder: Path, cpus: float, load: float, *, estimated: bool = True) -> Path:
    """A bundle with one search, as far as the table reads it."""
    estimate = {"load": load, "low": load * 0.98, "high": load * 1.02, "spread": 0.02, "trials": 14}
    found = {
        "capacity": {"estimate": estimate if estimated else None, "in_turn": 6},
        "confirmed": round(load * 0.97),
        "first_solid_fail": None,
        "at_least": False,
        "gates": [],
        "edge": None,
        "bound_by": "service",
    }
    run = {
        "machines": [{"cpus": 2, "cpu_model": "a CPU", "kernel": "6.1"}],
        "commit": "0" * 40,
        "command": "ladder search stt-capacity",
        "plan": {"cpu": {"service": {"cpus": cpus}}},
        "searches": [{"service": "rust-axum", "found": found}],
    }
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(run))
    return folder


def test_a_whole_cpu_is_fitted_from_two_shares_and_never_multiplied(tmp_path: Path) -> None:
    text = readme_results.capacity([searched(tmp_path / "a", 0.05, 270), searched(tmp_path / "b", 0.1, 512)])
    assert "| rust-axum | 0.1 | 512 [502, 522] | 2.0% | 14 | 497 |" in text
    assert text.index("0.20 ms/s") < text.index("Fitted, not measured")
    row = next(line for line in text.splitlines() if line.startswith("| rust-axum | 4,"))
    assert row.endswith("| 0.92 |")


@pytest.mark.parametrize("estimated", [True, False])
def test_one_share_has_no_table_of_whole_cpus(tmp_path: Path, estimated: bool) -> None:
    text = readme_results.capacity([searched(tmp_path / "a", 0.1, 512, estimated=estimated)])
    assert "whole CPU" not in text
    assert text.count("| rust-axum |") == 1


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ({"worker": "0-1 shared(service, inference, worker)"}, "service and generator share both."),
        ({"worker": "2-3"}, "the generator has CPUs of its own."),
    ],
)
def test_the_table_of_two_cpus_says_which_cpus_the_generator_had(
    tmp_path: Path, roles: dict[str, str], expected: str
) -> None:
    run = {
        "machines": [{"cpus": 2, "cpu_model": "a CPU", "kernel": "6.1"}],
        "commit": "0" * 40,
        "command": "ladder run two-cpus",
        "cpu_roles": roles,
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "report").mkdir()
    (tmp_path / "report/report.md").write_text(
        "# R\n\n## Gateways side by side\n\n**500 sessions, one-thread**\n\n| a |\n| - |\n| 1 |\n\n"
        "**500 sessions, by variant**\n\n| b |\n| - |\n| 2 |\n\n## Other\n\n| c |\n"
    )
    text = readme_results.two_cpus(tmp_path)
    assert text.startswith("500 sessions, by variant; means over")
    assert expected in text
    assert text.endswith("| b |\n| - |\n| 2 |\n")
