"""Some servers of the league, as CI measures them: built, spoken to, and climbed for a second each."""

from __future__ import annotations

import subprocess
from pathlib import Path

import league
import league_build
import league_check
import league_page
import league_plans
import league_servers
import pytest
from ws_ladder_analysis.load import read_bundle

ROOT = league_servers.ROOT
SERVERS = league_servers.load()
IN_CI = [SERVERS[name] for name in league_plans.CI]
PLANS = ("league-ci", "league-ci-socket.io")
# The first build of a machine compiles Go's standard library.
BUILD_SECONDS = 240


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    assert league_build.build(IN_CI) == {}


@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.parametrize(
    "server", [each for each in IN_CI if each.preset == league_plans.ECHO], ids=lambda one: one.name
)
def test_an_echo_returns_text_and_binary_and_refuses_compression(server: league_servers.Server) -> None:
    with league_check.started(server) as port:
        assert league_check.conversation(f"ws://127.0.0.1:{port}{server.path}") == []


@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.parametrize("name", PLANS)
def test_each_server_answers_every_message_and_has_a_row_on_the_page(name: str, tmp_path: Path) -> None:
    command: list[str | Path] = [league.LADDER, "run", ROOT / f"plans/{name}.yaml", "--no-rest", "--no-report"]
    done = subprocess.run([*command, "--results", tmp_path], cwd=ROOT, capture_output=True, text=True)
    results = sorted(tmp_path.rglob("result.json"))
    climbing = [each for each in IN_CI if (each.preset == league_plans.ECHO) == (name == "league-ci")]
    climbs = sum(climb.workload in each.workloads for each in climbing for climb in league_plans.CLIMBS)
    assert len(results) == climbs, done.stdout + done.stderr
    assert [mistake for each in results for mistake in league_check.wrong_with(each)] == []
    (bundle,) = tmp_path.iterdir()
    page = league_page.text([read_bundle(bundle)], SERVERS, {}, league_page.PRICE)
    for each in climbing:
        rows = [line for line in page.splitlines() if f"| [{each.name}](" in line]
        assert len(rows) == sum(climb.workload in each.workloads for climb in league_plans.CLIMBS)
        assert all(line.startswith("| — |") for line in rows), "one process has no interval, and so no rank"
