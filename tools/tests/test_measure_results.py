"""Published figures: docs/RESULTS.md is what the archives in docs/results/ say, and measuring can be interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import measure_results
import pytest
import result_archive
import result_blocks
from bench_format.schemas import CapacityEstimate
from measure_results import NotEndedError, Part
from process_ends import wait_for_end, wait_until
from readme_highlights import between
from this_machine import cpu_model

ROOT = Path(__file__).resolve().parents[2]
BY_NAME = {part.name: part for part in measure_results.PARTS}
# Blocks that were measured before archives were kept.
WITHOUT_ARCHIVE: set[str] = set()
ARCHIVED = sorted(name for name in BY_NAME if result_archive.file_of(name).is_file())


def page() -> str:
    return (ROOT / "docs/RESULTS.md").read_text()


def archived(part: str, folder: Path) -> str:
    """The block of a part from archives alone."""

    def find(evidence: str) -> Path:
        [name] = [part.name for part in measure_results.PARTS if part.evidence == evidence]
        return result_archive.unpack(name, folder / evidence)

    return result_blocks.block(part, find, measure_results.command_of(part)).text


@pytest.mark.parametrize("part", ARCHIVED)
def test_a_block_is_what_its_archive_says(part: str, tmp_path: Path) -> None:
    assert between(page(), part).strip() == archived(part, tmp_path).strip()


def test_every_block_with_figures_has_an_archive() -> None:
    written = {name for name in BY_NAME if between(page(), name).strip()}
    assert written - set(ARCHIVED) <= WITHOUT_ARCHIVE
    assert not WITHOUT_ARCHIVE & set(ARCHIVED), "no longer an exception: remove it from the list"


def test_another_figure_in_the_evidence_is_another_block(tmp_path: Path) -> None:
    part = BY_NAME["two-cpus"]
    before = archived(part.name, tmp_path / "before")
    folder = result_archive.unpack(part.name, tmp_path / "changed")
    file = next(path for path in sorted(folder.glob("trials/go-nethttp/sessions/one-thread/*/result.json")))
    result = json.loads(file.read_text())
    result["figures"]["service_cpu_seconds_per_million"] *= 1.1
    file.write_text(json.dumps(result))
    after = result_blocks.block(part.name, lambda _: folder, measure_results.command_of(part.name)).text
    changed = [line for line, other in zip(before.splitlines(), after.splitlines(), strict=True) if line != other]
    assert [line.split(" | ")[0] for line in changed] == ["| go-nethttp"]


def test_the_same_evidence_gives_the_same_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = result_archive.file_of("two-cpus").read_bytes()
    folder = result_archive.unpack("two-cpus", tmp_path / "evidence")
    monkeypatch.setattr(result_archive, "FOLDER", tmp_path / "archives")
    assert result_archive.pack("two-cpus", folder).read_bytes() == original


@pytest.mark.parametrize("file", sorted(result_archive.FOLDER.glob("*.tar.xz")), ids=lambda file: file.stem)
def test_an_archive_does_not_say_where_the_checkout_was(file: Path, tmp_path: Path) -> None:
    commands = [
        json.loads(run.read_text())["command"]
        for run in result_archive.unpack(file.name.removesuffix(".tar.xz"), tmp_path).rglob("run.json")
    ]
    assert [command for command in commands if "/target/release/" in command] == []


def test_a_place_in_a_command_is_left_out_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = result_archive.unpack("two-cpus", tmp_path / "evidence")
    monkeypatch.setattr(result_archive, "FOLDER", tmp_path / "archives")
    before = json.loads((folder / "run.json").read_text())
    there = before | {"command": "/there/target/release/ladder run two-cpus --results /there/results"}
    (folder / "run.json").write_text(json.dumps(there))
    result_archive.pack("two-cpus", folder)
    packed = json.loads((result_archive.unpack("two-cpus", tmp_path / "again") / "run.json").read_text())
    assert packed == before | {"command": "target/release/ladder run two-cpus --results results"}


def estimate(load: float) -> CapacityEstimate:
    return CapacityEstimate(load=load, low=load * 0.98, high=load * 1.02, spread=0.02, trials=14)


def run_of(
    folder: Path, cpus: float, load: float, *, state: str = "finished", cpu: str = cpu_model()
) -> dict[str, Any]:
    """A search's run.json, as far as the plans that follow from it read it."""
    search = {"from": 10, "to": 1100}
    ladder = {"workload": "sessions", "variant": "standard", "services": [], "tiers": [], "search": search}
    found = {"capacity": {"estimate": vars(estimate(load))}, "confirmed": round(load * 0.97)}
    run = {
        "state": state,
        "plan": {"name": "stt-capacity", "cpu": {"service": {"cpus": cpus}}, "ladders": [ladder]},
        "searches": [{"service": "rust-axum", "found": found}],
        "machines": [{"cpu_model": cpu}],
    }
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run))
    return run


def test_latencies_are_measured_at_a_share_of_each_capacity(tmp_path: Path) -> None:
    run_of(tmp_path / "b", 0.08, 200)
    plan = measure_results.at_share(tmp_path / "b")
    [ladder] = plan["ladders"]
    assert (ladder["services"], ladder["tiers"], ladder["search"]) == (["rust-axum"], [140], None)
    assert plan["repeats"] == 5


def test_the_second_search_has_half_of_the_share_and_the_same_loads(tmp_path: Path) -> None:
    run_of(tmp_path / "b", 0.08, 200)
    plan = measure_results.on_half(tmp_path / "b")
    assert plan["cpu"]["service"]["cpus"] == 0.04
    assert plan["ladders"][0]["search"] == {"from": 10, "to": 1100}


def searched(cpus: float, load: float) -> Any:
    """A run with one search, as far as the fit of a whole CPU reads it."""
    found = SimpleNamespace(capacity=SimpleNamespace(estimate=estimate(load)))
    shape = SimpleNamespace(service=SimpleNamespace(cpus=cpus))
    return SimpleNamespace(
        plan=SimpleNamespace(cpu=shape), searches=[SimpleNamespace(service="rust-axum", found=found)]
    )


def test_a_whole_cpu_is_fitted_from_two_shares_and_never_multiplied() -> None:
    table = result_blocks.whole_cpus([searched(0.05, 270), searched(0.1, 512)])
    assert table is not None
    [[gateway, load, power]] = table.rows
    assert gateway.text == "rust-axum"
    assert load.text.startswith("4,")
    assert power.text == "0.92"
    assert "Fitted, not measured" in table.notes[0]


def test_one_share_says_nothing_about_a_whole_cpu() -> None:
    assert result_blocks.whole_cpus([searched(0.1, 512)]) is None


def test_what_follows_from_a_search_waits_for_its_end(tmp_path: Path) -> None:
    run_of(tmp_path / "b", 0.08, 200, state="running")
    with pytest.raises(NotEndedError, match="measure the part `capacity` first"):
        measure_results.at_share(tmp_path / "b")


def test_what_follows_from_a_search_on_another_cpu_is_refused(tmp_path: Path) -> None:
    run_of(tmp_path / "b", 0.08, 200, cpu="Another CPU")
    with pytest.raises(NotEndedError, match="follows from capacities on Another CPU"):
        measure_results.on_half(tmp_path / "b")


@pytest.mark.parametrize(
    ("commit", "cpu", "brought"),
    [
        ("0123456789ab", cpu_model(), True),
        ("ba9876543210", cpu_model(), False),
        ("0123456789ab", "Another CPU", False),
    ],
)
def test_only_a_search_of_this_commit_on_this_cpu_is_brought_from_its_archive(
    commit: str, cpu: str, brought: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_results, "ROOT", tmp_path)
    archive = tmp_path / "capacity.tar.xz"
    run = run_of(tmp_path / "elsewhere", 0.08, 200, cpu=cpu) | {"commit": f"{commit}{'0' * 28}"}
    (tmp_path / "elsewhere/run.json").write_text(json.dumps(run))
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(tmp_path / "elsewhere/run.json", "run.json")
    monkeypatch.setattr(result_archive, "FOLDER", tmp_path)
    folder = measure_results.folder_of("0123456789ab")
    measure_results.bring_search(folder)
    assert (folder / measure_results.SEARCH / "run.json").exists() == brought


def test_a_part_that_was_stopped_is_resumed_and_one_that_ended_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_results, "ROOT", tmp_path)
    part = Part("results", 6, "run", "quick")
    folder = measure_results.folder_of("0" * 40)
    run_of(folder / "quick", 1, 1, state="running")
    command = measure_results.command_line(part, folder)
    assert command == [measure_results.LADDER, "run", "--resume", "quick", "--results", "results/of-000000000000"]
    (folder / "quick/run.json").write_text('{"state": "finished"}')
    monkeypatch.setattr(measure_results, "run", lambda *_: pytest.fail("it was measured again"))
    measure_results.measure(part, folder, None)


def parent_of_a_sleeper(file: Path) -> list[str]:
    """A program that starts another, writes its process id into a file, and waits for it."""
    inner = "import time; time.sleep(600)"
    new = f"{file}.new"
    outer = (
        f"import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {inner!r}]);"
        f" open({new!r}, 'w').write(str(p.pid)); os.rename({new!r}, {str(file)!r}); p.wait()"
    )
    return [sys.executable, "-c", outer]


def test_a_program_is_stopped_with_its_own_programs_when_the_time_is_over(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    until = time.monotonic() + 1
    assert measure_results.run(parent_of_a_sleeper(file), until) is None
    # Where the machine was too busy to start it within a second, there is nothing to stop.
    if file.is_file():
        wait_for_end(int(file.read_text()))


def test_a_program_is_stopped_with_its_own_programs_by_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    text = f"import measure_results as m; m.heed_sigterm(); m.run({parent_of_a_sleeper(file)!r}, None)"
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT / "tools", stderr=subprocess.DEVNULL) as measuring:
        wait_until(lambda: file.is_file() or measuring.poll() is not None)
        assert measuring.poll() is None, "it ended before it started anything"
        measuring.terminate()
    wait_for_end(int(file.read_text()))


def test_an_exit_code_that_is_no_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_results, "ROOT", tmp_path)
    monkeypatch.setattr(measure_results, "run", lambda *_: 101)
    with pytest.raises(NotEndedError, match="bench ended with exit code 101"):
        measure_results.measure(Part("bench", 75), measure_results.folder_of("0" * 40), None)


def test_files_that_differ_from_the_commit_are_named_and_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(measure_results, "ROOT", tmp_path)
    assert len(measure_results.commit()) == 40
    (tmp_path / "plan.yaml").write_text("changed")
    subprocess.run(["git", "add", "plan.yaml"], cwd=tmp_path, check=True)
    with pytest.raises(NotEndedError, match=r"plan\.yaml"):
        measure_results.commit()


def test_an_unknown_commit_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure_results.main(["results", "--of", "no-such-commit"]) == 1
    assert "no-such-commit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nothing"], "no part is called nothing"), (["--minutes", "0"], "--minutes is 0, but must be above 0")],
)
def test_bad_usage_says_what_is_possible(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        measure_results.main(arguments)
    assert said in capsys.readouterr().err
