"""Load generators of other projects: their entries, their reports, and the block of docs/LEAGUE.md."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import generator_page
import generator_reports
import generator_tools
import generator_trials
import generators
import pytest
from generator_tools import Generator, Load
from generator_trials import DELAY, FLOOD, FREEZE, QUICK
from league_page import PAGE
from league_servers import ROOT, LeagueError
from process_cpu import TICKS_PER_SECOND, cpu_seconds
from process_ends import wait_for_end, wait_until
from readme_highlights import between

KNOWN = generator_tools.load()
MEASURED = generator_tools.choose([])
LOCKS = {
    "node": ("package-lock.json", '"version": "{}"'),
    "python": ("requirements.txt", "=={} "),
    "jdk": ("pom.xml", "<version>{}</version>"),
}


@pytest.mark.parametrize("generator", MEASURED, ids=lambda one: one.name)
def test_the_version_of_a_generator_is_that_of_its_lock_file_and_is_pinned_with_a_reason(generator: Generator) -> None:
    pins = tomllib.loads((ROOT / "versions.lock.toml").read_text())
    if generator.version:
        file, text = LOCKS[generator.toolchain]
        assert text.format(generator.version) in (generator.folder / file).read_text()
        assert pins["generators"][generator.name]["version"] == generator.version
    elif generator.packages:
        assert generator.name in pins["debian-archive"]
    else:
        assert generator.name == generator_tools.OURS


@pytest.mark.parametrize("generator", KNOWN.values(), ids=KNOWN.keys())
def test_a_scenario_is_small_and_its_readme_says_what_its_figures_are(generator: Generator) -> None:
    readme = (generator.folder / "README.md").read_text()
    said = [generator.source, generator.licence, generator.open_loop, generator.latency, generator.counts]
    assert [text for text in [*said, generator.unavailable, *generator.notes] if text not in readme] == []
    files = [file for file in generator.folder.rglob("*") if file.suffix in {".xml", ".yaml", ".py", ".java"}]
    built = {"node_modules", "target"}
    scenario = [file for file in files if file.name != "pom.xml" and not built & set(file.parts)]
    assert sum(len(file.read_text().splitlines()) for file in scenario) < 60


def test_an_entry_without_a_command_must_say_why(tmp_path: Path) -> None:
    text = (generator_tools.FOLDER / "k6/generator.toml").read_text()
    file = tmp_path / "k6/generator.toml"
    file.parent.mkdir()
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("unavailable")))
    with pytest.raises(LeagueError, match="exactly one of command and unavailable"):
        generator_tools.read(file)


@pytest.mark.parametrize("generator", MEASURED, ids=lambda one: one.name)
@pytest.mark.parametrize("load", [Load(7, 20), Load(7, 20, 0.05)], ids=["flood", "paced"])
def test_no_placeholder_is_left_in_a_command_or_a_scenario(generator: Generator, load: Load, tmp_path: Path) -> None:
    command, environment = generator_tools.command(generator, load, 4711, tmp_path)
    scenario = (tmp_path / generator.template).read_text() if generator.template else ""
    given = " ".join([*command, *environment.values(), scenario])
    assert "$" not in scenario
    assert not [name for name in load.values(1, tmp_path) if f"{{{name}}}" in given]
    assert "4711" in given
    assert "7" in given


def test_an_open_loop_gets_the_rate_of_all_connections_and_a_closed_one_the_messages_of_each() -> None:
    values = Load(10, 20, 0.05).values(1, Path())
    assert (values["rate"], values["messages"]) == ("200", "400")


def test_a_generator_that_is_unknown_or_is_not_run_is_refused_with_the_known_ones() -> None:
    for name in ("nothing", "k6"):
        with pytest.raises(LeagueError, match=f"no generator is called {name}; there are artillery, gatling"):
            generator_tools.choose([name])


def test_the_block_of_the_page_is_what_the_archive_says(tmp_path: Path) -> None:
    assert between(PAGE.read_text(), generators.PART).strip() == generators.page_block(tmp_path).strip()


def trial(generator: str, scenario: str, /, number: int = 0, **found: Any) -> dict[str, Any]:
    return {"generator": generator, "scenario": scenario, "number": number, **found}


def evidence(*trials: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpus": 2, "model": "a CPU", "kernel": "6.1"}
    versions = {one["generator"]: "1.0" for one in trials}
    named = {"commit": "0" * 40, "command": "./justw generators", "machine": machine, "versions": versions}
    return named | {"settings": asdict(QUICK), "trials": list(trials)}


def row(found: dict[str, Any], section: str, title: str) -> list[str]:
    """The cells of a generator's row in a table of the block."""
    text = generator_page.block(found, list(KNOWN.values())).split(f"### {section}\n", 1)[1].split("\n###", 1)[0]
    line = next(line for line in text.splitlines() if line.startswith(f"| [{title}]"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_cost_has_an_interval_from_several_processes_only() -> None:
    rates = (2000, 2100, 1900, 2050, 1950)
    one = {"cpu_seconds": 2.0, "seconds": 4.0, "start_up_cpu_seconds": 0.5, "connections": 50}
    floods = [trial("locust", FLOOD, number, messages=rate, **one) for number, rate in enumerate(rates)]
    cells = row(evidence(*floods), "Cost of a message", "Locust")
    assert cells[1:] == ["999", "951 to 1,050", "50 %", "0.500 s"]
    assert row(evidence(floods[0]), "Cost of a message", "Locust")[1:3] == ["1,000", "no interval"]


def test_a_latency_is_shown_with_its_difference_from_the_true_one() -> None:
    reported: dict[str, Any] = {
        "reported_ms": {"p50": 1.0, "max": 990.0},
        "true_ms": {"p50": 0.0, "p99": 900.0, "max": 1000.0},
    }
    cells = row(evidence(trial("artillery", FREEZE, counted=9, served=10, **reported)), "A known freeze", "Artillery")
    assert cells[1:] == ["—", "1.0 (+1.0)", "—", "990 (-10.0)", "0.0 / 900 / 1000", "9 of 10"]


def test_a_trial_that_failed_is_a_line_with_its_reason() -> None:
    text = generator_page.block(evidence(trial("tsung", DELAY, error="it didn't end")), list(KNOWN.values()))
    assert "- tsung, delay, process 1: it didn't end" in text


def test_what_is_not_measured_is_in_the_table_of_kinds_and_in_no_other() -> None:
    text = generator_page.block(evidence(trial("tsung", DELAY, error="x")), list(KNOWN.values()))
    assert text.count("| [k6](") == 1
    assert KNOWN["k6"].unavailable in text


def test_what_is_true_of_a_freeze_is_what_is_left_of_it_when_a_message_is_due() -> None:
    true = generator_trials.truth(FREEZE, QUICK, {"frozen_seconds": 1.0, "delays_ms": {}})
    # A quarter of all messages is due in the freeze, evenly: of these, 4 % wait for more than 0.96 s.
    assert true["p50"] == 0
    assert true["p99"] == pytest.approx(960, abs=10)
    assert true["max"] == pytest.approx(1000, abs=10)
    assert true["mean"] == pytest.approx(125, abs=2)


def test_the_mean_of_tsung_is_over_the_last_interval_and_all_before_it(tmp_path: Path) -> None:
    log = tmp_path / "log/20260101-0000/tsung.log"
    log.parent.mkdir(parents=True)
    lines = ("tr_echo 10 5.0 0.1 7.5 1.0 0 0", "request 99 9 0 9 9 0 0", "tr_echo 10 8.0 0.1 9.5 1.0 5.0 10")
    log.write_text("".join(f"stats: {line}\n" for line in lines))
    report = generator_reports.read("tsung", tmp_path)
    assert (report.counted, report.reported_ms) == (20, {"mean": 6.5, "max": 9.5})


@pytest.mark.parametrize("name", generator_reports.READERS)
def test_a_missing_report_is_an_error_and_no_figure(name: str, tmp_path: Path) -> None:
    with pytest.raises(generator_reports.ReportError, match="can't be read"):
        generator_reports.read(name, tmp_path)


def test_every_generator_that_is_run_has_a_reader() -> None:
    assert {one.name for one in MEASURED} == set(generator_reports.READERS)


def test_the_cpu_time_of_a_program_has_that_of_its_children_the_ended_ones_too() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass\n"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint(flush=True)\ninput()\n"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = cpu_seconds(process.pid)
        process.communicate("\n")
    # The kernel rounds user and system time down to whole ticks, of each process and of its children.
    assert 0.4 - 4 / TICKS_PER_SECOND <= used < 3


def broken(line: str) -> Generator:
    """A generator that is this line of a shell."""
    return Generator(
        name="broken",
        title="Broken",
        language="sh",
        licence="MIT",
        source="https://example.org",
        open_loop="no",
        latency="none",
        percentiles="none",
        counts="nothing",
        toolchain="own",
        version="1.0",
        command=("sh", "-c", line),
    )


def test_a_generator_that_ends_before_a_message_is_an_error_with_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generator_trials, "echo", silent_echo)
    found = generator_trials.run(broken("echo working; echo no such option; exit 3"), FLOOD, QUICK)
    assert found == {"error": "it ended with exit code 3 before a message: no such option"}


class silent_echo:  # noqa: N801
    """An echo that no message reaches."""

    port = 1

    def __init__(self, *options: str) -> None:
        self.options = options

    def __enter__(self) -> silent_echo:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def books(self) -> dict[str, Any]:
        return {"messages": 0}


def test_what_a_generator_started_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_trials, "STOP_SECONDS", 0.2)
    generator = broken("trap '' TERM; sleep 600 & echo $! > {folder}/pid.new; mv {folder}/pid.new {folder}/pid; wait")
    with generator_trials.started(generator, Load(1, 1), 1, tmp_path) as process:
        wait_until(lambda: (tmp_path / "pid").is_file())
    assert process.returncode is not None
    # It was killed; on a busy machine it ends a little later.
    wait_for_end(int((tmp_path / "pid").read_text()))


def test_a_run_whose_time_is_over_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[tuple[str, str]] = []

    def run(generator: Generator, scenario: str, _: Any) -> dict[str, Any]:
        done.append((generator.name, scenario))
        return {"error": "not run here"}

    monkeypatch.setattr(generator_trials, "run", run)
    monkeypatch.setattr(generator_tools, "version", lambda _: "1.0")
    asked = [KNOWN["locust"], KNOWN["artillery"]]
    assert not generators.measure(asked, QUICK, "0" * 40, tmp_path, time.monotonic() - 1)
    assert done == []
    assert generators.measure(asked[:1], QUICK, "0" * 40, tmp_path, None)
    assert generators.measure(asked, QUICK, "0" * 40, tmp_path, None)
    assert done == [("locust", name) for name in (FLOOD, DELAY, FREEZE)] + [
        ("artillery", name) for name in (FLOOD, DELAY, FREEZE)
    ]
    kept = json.loads((tmp_path / "generators.json").read_text())
    assert len(kept["trials"]) == 6


def test_bad_usage_says_what_is_possible(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        generators.main(["--minutes", "0"])
    assert "--minutes is 0, but must be above 0" in capsys.readouterr().err
