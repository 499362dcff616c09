"""Two finished bundles side by side: what is a pair, what is refused, and what the intervals show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.bundles import Json, TrialSpec, bundle, edit
from tests.bundles.workers import environment
from ws_ladder_analysis.__main__ import main
from ws_ladder_analysis.comparison.pairing import Order
from ws_ladder_analysis.comparison.rows import Compared, Row, compare_bundles
from ws_ladder_analysis.comparison.sides import ComparisonError
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.sequential import Verdict

SPEC = TrialSpec(service="gateway")
# Rates of ten processes that differ by 3 % or so.
NOISE = (1.0, 1.02, 0.97, 1.01, 0.99, 1.03, 0.98, 1.0, 1.01, 0.99)
SECOND_NS = 1_000_000_000


def run(folder: Path, name: str, speed: float = 1.0, spec: TrialSpec = SPEC, **overrides: object) -> Path:
    """A run of one service with ten processes."""
    specs = [
        replace(spec, process=process, due=round(20_000 * speed * noise)) for process, noise in enumerate(NOISE, 1)
    ]
    return bundle(folder, specs, id=name, **overrides)


def start_at(root: Path, seconds: Sequence[float]) -> None:
    """Sets when each process of a run started, in seconds after the first moment."""
    for process, start in enumerate(seconds, 1):
        file = root / "trials" / replace(SPEC, process=process).folder / "result.json"
        edit(file, partial(dict.update, started_at_unix_ns=int(start * SECOND_NS)))


def compared(*folders: Path, services: Sequence[str] = ()) -> Compared:
    (found,) = compare_bundles([read_bundle(folder) for folder in folders], services)
    return found


def rate(found: Compared) -> Row:
    return next(row for row in found.rows if row.comparison.figure.name == "delivered per second")


def refused(*folders: Path, services: Sequence[str] = ()) -> str:
    with pytest.raises(ComparisonError) as error:
        compare_bundles([read_bundle(folder) for folder in folders], services)
    return str(error.value)


def test_two_runs_one_after_the_other_are_compared_by_welch_with_a_warning(tmp_path: Path) -> None:
    left, right = run(tmp_path, "a"), run(tmp_path, "b", 1.2)
    start_at(left, range(10))
    start_at(right, range(100, 110))
    found = compared(left, right)
    row = rate(found)
    assert row.pairing.order is Order.APART
    assert row.comparison.ratio is not None
    assert not row.comparison.ratio.paired
    assert (row.verdict, row.comparison.conclusion) == (Verdict.DIFFERS, "A is worse")
    assert "were not measured in turns" in found.warnings[0]


def test_two_runs_that_took_turns_are_pairs(tmp_path: Path) -> None:
    # Both drift by 30 %, and within each pair they don't differ: unpaired, nothing would be shown.
    drift = [1 + 0.03 * step for step in range(10)]
    folders = []
    for name in ("a", "b"):
        specs = [replace(SPEC, process=number, due=round(20_000 * one)) for number, one in enumerate(drift, 1)]
        folders.append(bundle(tmp_path, specs, id=name))
    firsts = [2 * pair + pair % 2 for pair in range(10)]
    start_at(folders[0], firsts)
    start_at(folders[1], [4 * pair + 1 - first for pair, first in enumerate(firsts)])
    found = compared(*folders)
    assert rate(found).pairing.order is Order.TURNED
    assert rate(found).verdict is Verdict.SAME
    assert found.warnings == ()


def test_pairs_of_one_order_are_pairs_with_a_warning(tmp_path: Path) -> None:
    left, right = run(tmp_path, "a"), run(tmp_path, "b", 1.2)
    start_at(left, range(0, 20, 2))
    start_at(right, range(1, 20, 2))
    found = compared(left, right)
    assert rate(found).pairing.order is Order.FIXED
    assert "steady drift" in found.warnings[0]


def test_two_services_of_one_run_are_pairs(tmp_path: Path) -> None:
    specs = [
        replace(SPEC, service=service, process=process, due=round(20_000 * speed * noise))
        for process, noise in enumerate(NOISE, 1)
        for service, speed in (("old", 1.0), ("new", 0.9))
    ]
    found = compared(bundle(tmp_path, specs))
    row = rate(found)
    assert row.comparison.ratio is not None
    assert row.comparison.ratio.processes == (10, 10)
    assert row.is_worse
    assert not rate(compared(bundle(tmp_path / "again", specs), services=("new", "old"))).is_worse


def test_the_same_figures_are_the_same_within_5_percent(tmp_path: Path) -> None:
    assert rate(compared(run(tmp_path, "a"), run(tmp_path, "b"))).verdict is Verdict.SAME


def test_a_difference_that_noise_hides_says_how_many_pairs_it_takes(tmp_path: Path) -> None:
    def noisy(name: str, factor: float) -> Path:
        specs = [
            replace(SPEC, process=process, due=round(20_000 * factor * noise**8))
            for process, noise in enumerate(NOISE, 1)
        ]
        return bundle(tmp_path, specs, id=name)

    row = rate(compared(noisy("a", 1.0), noisy("b", 1.02)))
    assert row.verdict is Verdict.NOT_SHOWN
    assert row.pairs_needed is not None
    assert 50 < row.pairs_needed < 1_000


def test_fewer_than_five_processes_have_a_ratio_and_no_verdict(tmp_path: Path) -> None:
    folders = [bundle(tmp_path, [SPEC], id=name) for name in ("a", "b")]
    row = rate(compared(*folders))
    assert row.verdict is None
    assert row.comparison.ratio is not None


def other_machine(**changes: object) -> Json:
    return environment() | changes


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"machines": [other_machine(host="elsewhere")]}, "another machine: host: "),
        ({"machines": [other_machine(kernel="6.9.9")]}, "another machine: kernel: "),
        ({"machines": []}, "another machine: 1 took part in a, 0 in b"),
        ({"cpu_roles": {"service": "0-3", "worker": "1"}}, "other limits: CPUs of service: 0 and 0-3"),
        ({"state": "running"}, "b: the run is running, not finished"),
    ],
)
def test_another_machine_other_limits_and_unfinished_runs_are_refused(
    tmp_path: Path, overrides: Json, reason: str
) -> None:
    assert reason in refused(run(tmp_path, "a"), run(tmp_path, "b", **overrides))


def test_another_plan_is_refused_and_names_what_differs(tmp_path: Path) -> None:
    left, right = run(tmp_path, "a"), run(tmp_path, "b")
    edit(right / "run.json", lambda file: file["plan"].update(warmup_seconds=5.0, repeats=99, why="another"))
    assert refused(left, right) == "throughput: another plan: warmup_seconds: 0.5 and 5.0"


def test_another_load_is_refused(tmp_path: Path) -> None:
    left = run(tmp_path, "a")
    right = run(tmp_path, "b", spec=replace(SPEC, load={"model": "closed", "in_flight": 8}))
    assert "another plan: load: " in refused(left, right)


def test_another_generator_is_refused(tmp_path: Path) -> None:
    left, right = run(tmp_path, "a"), run(tmp_path, "b", spec=replace(SPEC, workers=1))
    edit(right / "run.json", lambda file: file["plan"].update(workers=2))
    assert "another generator: workers: 2 and 1" in refused(left, right)


def test_files_that_disagree_are_refused(tmp_path: Path) -> None:
    left, right = run(tmp_path, "a"), run(tmp_path, "b")
    edit(right / "trials" / SPEC.folder / "result.json", lambda result: result["messages"].update(delivered=1))
    assert "b: its files disagree in " in refused(left, right)


def test_a_ladder_that_only_one_has_is_left_out_and_the_rest_is_compared(tmp_path: Path) -> None:
    more = replace(SPEC, variant="batch")
    specs = [replace(one, process=process) for one in (SPEC, more) for process in range(1, 6)]
    left = bundle(tmp_path, specs, id="a")
    found = compared(left, run(tmp_path, "b"))
    assert found.left_out == ("throughput · batch: B has no such ladder",)
    assert {row.comparison.ladder.variant for row in found.rows} == {"standard"}


def test_services_must_be_clear(tmp_path: Path) -> None:
    two = [replace(SPEC, service=service) for service in ("one", "two")]
    left, right = bundle(tmp_path, two, id="a"), run(tmp_path, "b")
    assert "no service is in both: a has one, two, b has gateway" in refused(left, right)
    assert refused(left, right, services=("three", "gateway")) == "a has no service three; it has one, two"
    assert "name both services" in refused(left, right, services=("one",))
    assert rate(compared(left, right, services=("two", "gateway"))).comparison.ratio is not None


def test_the_command_prints_each_figure_with_the_cost_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = run(tmp_path, "a"), run(tmp_path, "b", 0.8)
    assert main(["compare", str(left), str(right)]) == 1
    printed = capsys.readouterr().out
    assert "differs: A is better" in printed
    assert "cost: CPU per million messages" in printed
    assert main(["compare", str(right), str(left)]) == 0


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(run(tmp_path, "a")), str(run(tmp_path, "b")), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    row = next(one for one in found["rows"] if one["figure"] == "delivered per second")
    assert (row["verdict"], row["pairs"], row["processes"]) == ("same within 5 %", None, [10, 10])
    assert found["a"]["run"] == "a"


def test_the_command_refuses_with_exit_code_2_and_a_line_for_each_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = run(tmp_path, "b", machines=[other_machine(host="elsewhere", kernel="6.9.9")])
    assert main(["compare", str(run(tmp_path, "a")), str(right)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("can't compare: another machine: ") for line in lines] == [True, True]
    assert main(["compare", str(tmp_path / "nothing")]) == 2
