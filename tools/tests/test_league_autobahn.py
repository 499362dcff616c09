"""The outcome of the Autobahn cases: what is kept of a report, and the table of docs/LEAGUE.md."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import league_autobahn
import league_servers
import pytest
from league_autobahn import CATEGORIES, block, category, cell, confirmed, counts, listed, record, summary
from league_page import PAGE
from league_servers import ROOT, LeagueError
from readme_highlights import between

SERVERS = league_servers.load()
WS = SERVERS["ws"]


def case(behavior: str, close: str = "OK") -> dict[str, Any]:
    return {"behavior": behavior, "behaviorClose": close}


REPORT = {
    "1.1.1": case("OK"),
    "3.2": case("NON-STRICT"),
    "7.1.5": case("FAILED", "WRONG CODE"),
    "7.3.1": case("OK", "FAILED"),
    "7.1.6": case("INFORMATIONAL"),
    "10.1.1": case("OK", "INFORMATIONAL"),
}


def test_an_outcome_has_the_cases_of_each_category_and_those_that_are_not_strictly_right() -> None:
    outcome = record(WS, REPORT)
    assert outcome["cases"] == {"1": 1, "3": 1, "7": 2, "10": 1}
    assert outcome["others"] == {"3.2": "NON-STRICT", "7.1.5": "FAILED", "7.3.1": "close: FAILED"}
    assert (outcome["version"], outcome["suite"]) == (WS.version, "25.10.1")
    assert summary(outcome) == "2 strict, 1 non-strict, 2 failed"
    assert counts(outcome, "7") == (0, 0, 2)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ((16, 0, 0), "16"),
        ((5, 2, 0), "5, 2 non-strict"),
        ((0, 1, 3), "0, 1 non-strict, **3 failed**"),
        ((0, 0, 0), "—"),
    ],
)
def test_a_cell_names_what_is_not_strictly_right(found: tuple[int, int, int], text: str) -> None:
    assert cell(*found) == text


def test_many_failed_cases_are_counted_and_few_are_listed() -> None:
    assert listed(["6.3.1", "7.1.5"]) == "6.3.1, 7.1.5"
    assert listed([*(f"6.1.{number}" for number in range(12)), "7.1.5"]) == "12 of 6.*, 1 of 7.*"


def test_a_failed_case_is_run_again_and_the_second_verdict_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(_: Any, cases: list[str]) -> dict[str, Any]:
        asked.append(cases)
        return {"7.1.5": case("OK"), "7.3.1": case("OK", "FAILED")}

    monkeypatch.setattr(league_autobahn, "run", run)
    assert record(WS, confirmed(WS, REPORT))["others"] == {"3.2": "NON-STRICT", "7.3.1": "close: FAILED"}
    assert asked == [["7.1.5", "7.3.1"]]
    confirmed(WS, {"1.1.1": case("OK")})
    assert len(asked) == 1


def test_a_server_that_refuses_the_upgrade_has_no_row_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = "HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n"
    assert league_autobahn.refusal({"httpResponse": status}) == "426 Upgrade Required"
    assert league_autobahn.refusal({"httpResponse": "HTTP/1.1 101 Switching Protocols\r\n\r\n"}) == ""
    assert league_autobahn.refusal({"httpResponse": None}) == "no response"

    def refuses(*_: Any) -> dict[str, Any]:
        raise league_autobahn.RefusedError("426 Upgrade Required")

    monkeypatch.setattr(league_autobahn, "run", refuses)
    monkeypatch.setattr(league_autobahn, "file_of", lambda one: tmp_path / f"{one.name}.json")
    assert league_autobahn.tried(WS) == 0
    (tmp_path / "bun.json").write_text(json.dumps(record(SERVERS["bun"], REPORT)))
    text = block({"ws": WS, "bun": SERVERS["bun"]})
    assert "| [bun]" in text
    assert "| [ws]" not in text
    assert f"ws {WS.version} (426 Upgrade Required)" in text


def test_the_table_of_the_page_is_what_the_outcomes_say() -> None:
    assert between(PAGE.read_text(), league_autobahn.PART).strip() == block(SERVERS).strip()


@pytest.mark.parametrize(
    "server", [one for one in SERVERS.values() if league_autobahn.file_of(one).is_file()], ids=lambda one: one.name
)
def test_an_outcome_is_that_of_the_version_that_the_league_has_and_of_all_cases(server: league_servers.Server) -> None:
    outcome = json.loads(league_autobahn.file_of(server).read_text())
    assert outcome["server"] == server.name
    assert outcome["suite"] == league_autobahn.suite()
    if server.version:
        assert outcome["version"] == server.version, f"./justw autobahn {server.name}"
    if "refused" in outcome:
        assert outcome["cases"] == {}
        return
    assert set(outcome["cases"]) == set(CATEGORIES)
    assert sum(outcome["cases"].values()) >= 240
    assert {category(one) for one in outcome["others"]} <= set(CATEGORIES)


def test_a_server_of_another_protocol_is_refused() -> None:
    with pytest.raises(LeagueError, match=r"mosquitto: the cases need an echo"):
        league_autobahn.main(["mosquitto"])


def test_the_suite_has_the_pinned_versions() -> None:
    pins = tomllib.loads((ROOT / "versions.lock.toml").read_text())["python2"]
    lock = league_autobahn.LOCK.read_text()
    assert all(f"{name}=={pins[name]['version']} " in lock for name in ("autobahntestsuite", "wsaccel"))
    assert pins["virtualenv"]["version"]
    assert lock.count("==") == lock.count("--hash=sha256:")
