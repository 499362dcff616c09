"""The league's files and what is made of them: entries, plans, ranks, and servers that can't be had."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import league_build
import league_check
import league_page
import league_plans
import league_run
import league_servers
import measure_results
import pytest
from bench_format.schemas import BoundBy
from league_servers import LeagueError, Server
from measure_results import NotEndedError
from readme_highlights import between
from scipy import stats
from ws_ladder_analysis.ladders import Tier

SERVERS = league_servers.load()
LEAGUE_MQTT = league_servers.ROOT / "plans/league-mqtt-3.1.1.yaml"
ONE = Server(
    name="one",
    language="C",
    licence="MIT",
    source="https://example.org",
    toolchain="debian",
    command=("one", "{port}"),
    preset="echo",
    path="/",
    workloads=("request-reply",),
    threads="one",
    version="1.0",
)
# The lock file of a server, relative to its folder.
LOCKS = {
    "node": "package-lock.json",
    "python": "requirements.txt",
    "go": "go.sum",
    "rust": "../rust/Cargo.lock",
    "jdk": "pom.xml",
}


def pinned(server: Server) -> str:
    """What stands in the server's lock file for its version."""
    return {
        "node": f'"version": "{server.version}"',
        "python": f"=={server.version} ",
        "go": f" v{server.version} h1:",
        "rust": f'version = "{server.version}"',
        "jdk": f"<version>{server.version}</version>",
    }[server.toolchain]


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_the_version_of_a_server_is_that_of_its_lock_file(server: Server) -> None:
    if server.version:
        assert pinned(server) in (server.folder / LOCKS[server.toolchain]).read_text()
    else:
        assert server.toolchain in ("debian", "elixir", "extension") or server.packages


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_a_server_is_small_and_its_readme_says_where_its_set_up_is_documented(server: Server) -> None:
    readme = (server.folder / "README.md").read_text()
    assert len(readme.splitlines()) <= 25
    assert server.source.removeprefix("services/") in readme
    assert server.licence in readme
    assert all(note in readme for note in server.notes)
    source = {".mjs", ".ts", ".py", ".go", ".rs", ".java", ".erl"}
    sources = [file for pattern in ("*", "src/**/*") for file in server.folder.glob(pattern) if file.suffix in source]
    assert sum(len(file.read_text().splitlines()) for file in sources) < 60
    assert server.preset in {file.stem for file in (league_servers.ROOT / "presets").glob("*.yaml")}


def test_the_plans_are_those_of_the_entries() -> None:
    for file, text in league_plans.plans(SERVERS.values()).items():
        assert file.read_text() == text, f"{file.name} is outdated: python3 tools/league.py plan"


def test_every_server_is_in_one_plan_and_each_plan_has_one_preset() -> None:
    names = [
        name
        for file in league_plans.plans(SERVERS.values())
        if league_plans.is_measured(file)
        for name in league_plans.services_of(file)
    ]
    assert sorted(names) == sorted(SERVERS)
    assert len(names) >= 25


def test_a_ladder_names_its_services_only_where_some_do_not_climb_it() -> None:
    both = replace(ONE, name="two", workloads=("request-reply", "fanout"))
    text = league_plans.plan("x", "echo", [ONE, both], league_plans.FULL)
    fanout = text.split("workload: fanout", 1)[1].split("- workload", 1)[0]
    assert "services: [two]" in fanout
    assert "services:" not in text.split("workload: request-reply", 1)[1].split("- workload", 1)[0]


def test_a_connection_storm_has_no_warm_up_and_requests_have_the_same_one_for_all_servers() -> None:
    text = league_plans.plan(
        "x", "echo", [replace(ONE, workloads=("request-reply", "connection-storm"))], league_plans.FULL
    )
    requests, storm = text.split("- workload: connection-storm")
    assert "warmup_seconds: 0\n" in storm
    assert requests.count(f"    warmup_seconds: {league_plans.COMPILES_SECONDS}\n") == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('licenses = "MIT"', "unknown key licenses"),
        ('version_command = ["one", "--version"]', "exactly one of version and version_command"),
        ('toolchain = "make"', "toolchain 'make' is none of"),
        ('command = ["one"]', "neither command nor env has {port}"),
        ('name = "two"', "must be that of its folder"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_file(line: str, message: str, tmp_path: Path) -> None:
    right = {key: f"{key} = {json.dumps(value)}" for key, value in vars(ONE).items() if value not in ("", (), {})}
    file = tmp_path / "one/league.toml"
    file.parent.mkdir()
    file.write_text("\n".join((right | {line.split(" ")[0]: line}).values()))
    with pytest.raises(LeagueError, match=r"one/league.toml: ") as raised:
        league_servers.load(tmp_path)
    assert message in str(raised.value)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LeagueError, match="no server is called nothing; there are one"):
        league_servers.choose({"one": ONE}, ["nothing"])


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], dict[str, str]]:
    """Builds a server of this name by a shell line."""
    monkeypatch.setattr(league_build, "LEFT_OUT", tmp_path / "left-out.json")
    monkeypatch.setattr(league_servers, "LEAGUE", tmp_path)
    return lambda name, line: league_build.build([replace(ONE, name=name, build=line)])


def test_a_server_that_cannot_be_built_is_left_out_with_its_last_line(
    builds: Callable[[str, str], dict[str, str]], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert builds("one", "echo working; echo 'no compiler is here' >&2; exit 1") == {"one": "no compiler is here"}
    assert builds("two", "exit 3") == {"two": "its build failed with exit code 3"}
    assert league_build.left_out() == {"one": "no compiler is here", "two": "its build failed with exit code 3"}
    assert builds("one", "true") == {}
    assert list(league_build.left_out()) == ["two"]


@pytest.fixture
def at_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout at a commit, where all servers are built; the folder of the league's evidence in it."""
    monkeypatch.setattr(league_build, "LEFT_OUT", tmp_path / "left-out.json")
    monkeypatch.setattr(league_run, "ROOT", tmp_path)
    monkeypatch.setattr(measure_results, "ROOT", tmp_path)
    monkeypatch.setattr(measure_results, "commit", lambda: "0" * 40)
    return league_run.folder_of("0" * 40)


def climbs(commands: list[list[str]], code: int | None) -> Callable[[list[str], float | None], int | None]:
    """What takes the place of a program: keeps its command and leaves a bundle that has ended, or one that has not."""

    def run(command: list[str], _until: float | None) -> int | None:
        commands.append(command)
        name = command[command.index("--resume" if "--resume" in command else "--run-id") + 1]
        bundle = measure_results.ROOT / command[command.index("--results") + 1] / name
        bundle.mkdir(exist_ok=True)
        (bundle / "run.json").write_text(json.dumps({"state": "running" if code is None else "finished"}))
        return code

    return run


MQTT = {name: SERVERS[name] for name in ("mosquitto", "mochi-mqtt")}


@pytest.mark.parametrize(
    ("gone", "options"),
    [([], [[]]), (["mosquitto"], [["--service=mochi-mqtt"]]), (["mosquitto", "mochi-mqtt"], [])],
)
def test_a_run_leaves_out_what_is_not_built(
    gone: list[str], options: list[list[str]], at_a_commit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    league_build.remember(dict.fromkeys(gone, "no compiler"), [])
    commands: list[list[str]] = []
    monkeypatch.setattr(measure_results, "run", climbs(commands, 0))
    plans = {LEAGUE_MQTT: "", league_servers.ROOT / "plans/league-ci.yaml": ""}
    monkeypatch.setattr(league_plans, "plans", lambda _: plans)
    assert league_run.measure(MQTT, Path("ladder"), None) == at_a_commit
    start = ["ladder", "run", "plans/league-mqtt-3.1.1.yaml", "--results", "results/of-000000000000/league"]
    assert commands == [[*start, "--run-id", "league-mqtt-3.1.1", *each] for each in options]
    assert list(json.loads((at_a_commit / league_run.LEFT_OUT).read_text())) == sorted(gone)


def test_a_league_that_was_stopped_goes_on_and_what_has_ended_is_not_measured_again(
    at_a_commit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(league_plans, "plans", lambda _: {LEAGUE_MQTT: ""})
    monkeypatch.setattr(measure_results, "run", climbs(commands, None))
    with pytest.raises(NotEndedError, match="the time is over; the same command goes on from there"):
        league_run.measure(MQTT, Path("ladder"), 1)
    with pytest.raises(LeagueError, match="has no league that was measured to its end"):
        league_run.archive(at_a_commit)
    monkeypatch.setattr(measure_results, "run", climbs(commands, 1))
    league_run.measure(MQTT, Path("ladder"), None)
    league_run.measure(MQTT, Path("ladder"), None)
    again = ["ladder", "run", "--resume", "league-mqtt-3.1.1", "--results", "results/of-000000000000/league"]
    assert commands[1:] == [again]


def test_on_a_bigger_machine_each_plan_is_climbed_and_searched(
    at_a_commit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    large = league_servers.ROOT / "plans/league-large-nats.yaml"
    monkeypatch.setattr(league_plans, "plans", lambda _: {LEAGUE_MQTT: "", large: ""})
    monkeypatch.setattr(measure_results, "run", climbs(commands, 0))
    folder = league_run.measure(SERVERS, Path("ladder"), None, large=True)
    assert folder == at_a_commit.with_name("league-large")
    assert [(command[1], command[-1]) for command in commands] == [
        ("run", "league-large-nats"),
        ("search", "league-large-nats-capacity"),
    ]


def test_a_league_that_can_not_be_measured_says_with_which_exit_code(
    at_a_commit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not at_a_commit.exists()
    monkeypatch.setattr(league_plans, "plans", lambda _: {LEAGUE_MQTT: ""})
    monkeypatch.setattr(measure_results, "run", climbs([], 101))
    with pytest.raises(NotEndedError, match=r"league-mqtt-3\.1\.1 ended with exit code 101"):
        league_run.measure(MQTT, Path("ladder"), None)


def test_the_page_is_what_the_archive_says(tmp_path: Path) -> None:
    written = between(league_page.PAGE.read_text(), "league").strip()
    assert written == league_page.block(SERVERS, tmp_path).strip(), "write it again: tools/league.py page"


def rows(*intervals: tuple[float, float] | None) -> list[league_page.Row]:
    return [league_page.Row("one", Tier(1, ()), 1.0, interval) for interval in intervals]


def test_servers_whose_intervals_overlap_have_the_same_rank() -> None:
    three = rows((10, 12), (11, 13), (1, 2))
    assert league_page.ranks(three, higher_is_better=True) == [1, 1, 3]
    assert league_page.ranks(three, higher_is_better=False) == [2, 2, 1]


def test_a_server_without_an_interval_has_no_rank_and_moves_no_other() -> None:
    assert league_page.ranks(rows(None, (1, 2), (3, 4)), higher_is_better=True) == [None, 2, 1]


def test_a_server_that_is_alone_in_its_table_has_no_rank() -> None:
    assert league_page.ranks(rows((1, 2)), higher_is_better=True) == [None]


def test_a_lower_bound_is_beaten_by_no_server() -> None:
    assert league_page.ranks(rows((10, math.inf), (20, 21)), higher_is_better=True) == [1, 1]


@pytest.mark.parametrize(
    ("bounds", "ranked", "remarks"),
    [
        ((BoundBy.SERVICE,), league_page.CPU, 1),
        ((BoundBy.BOTH, BoundBy.NEITHER), league_page.CPU, 1),
        ((BoundBy.NEITHER, BoundBy.GENERATOR), league_page.CPU, 0),
        ((), league_page.CPU, 0),
        # There, being the limit is what is measured.
        ((BoundBy.SERVICE,), league_page.RANKED["request-reply", "closed"], 0),
    ],
)
def test_a_server_that_a_given_rate_is_too_much_for_is_named(
    bounds: tuple[BoundBy, ...], ranked: league_page.Ranked, remarks: int
) -> None:
    tier = SimpleNamespace(bounds=bounds, trials=(), valid=(), results=())
    row = league_page.Row("one", cast(Tier, tier), 1.0, None)
    assert league_page.remarks_on([row], ranked).count("one: this load takes its whole CPU") == remarks


def test_the_interval_is_students_of_the_geometric_mean() -> None:
    values = [1.0, 1.1, 1.2, 1.05, 1.15]
    interval = league_page.interval_of(values)[1]
    assert interval is not None
    logs = [math.log(value) for value in values]
    half = float(stats.t.ppf(0.975, 4)) * statistics.stdev(logs) / math.sqrt(5)
    assert interval == pytest.approx((math.exp(statistics.mean(logs) - half), math.exp(statistics.mean(logs) + half)))


def test_the_price_of_a_million_messages_is_that_of_their_cpu_time() -> None:
    assert league_page.dollars(3600, 0.04) == "$0.0400"
    assert league_page.dollars(None, 0.04) == league_page.NONE


def test_a_server_that_does_not_start_is_an_error_that_says_how_to_build_it() -> None:
    broken = replace(ONE, command=("false", "{port}"))
    with pytest.raises(LeagueError, match=r"league.py build one"), league_check.started(broken):
        pass
