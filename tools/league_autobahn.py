"""Runs the cases of the Autobahn test suite against servers of the league, and writes what they found.

Each server's outcome goes to services/league/NAME/autobahn.json, and the table of docs/LEAGUE.md is made from these.

Usage: league_autobahn.py SERVER…     runs all cases against built servers with the preset echo
       league_autobahn.py page        writes the table from what was found before
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import league_check
import league_plans
import league_servers
from league_page import NONE, PAGE, markdown_table
from league_servers import ROOT, LeagueError, Server
from readme_highlights import replaced

WSTEST = ROOT / ".tools/autobahn/python/bin/wstest"
LOCK = ROOT / "services/league/autobahn/requirements.txt"
PART = "autobahn"
# As in the suite's own example: limits and speed are not conformance, and no server of the league compresses.
EXCLUDED = ("9.*", "12.*", "13.*")
CATEGORIES: Mapping[str, str] = {
    "1": "framing",
    "2": "pings",
    "3": "reserved bits",
    "4": "opcodes",
    "5": "fragments",
    "6": "UTF-8",
    "7": "close",
    "10": "fragmenting servers",
}
STRICT, NON_STRICT, NO_VERDICT = "OK", "NON-STRICT", "INFORMATIONAL"
# So many cases are listed one by one.
FEW = 12
# All cases take some minutes; one that waits for a server that says nothing takes seconds.
SECONDS = 1800.0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 all cases ran, 1 a server has no outcome, 2 bad usage, 3 the suite can't be had here."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    worst = 0
    if list(arguments) != ["page"]:
        servers = league_servers.choose(league_servers.load(), list(arguments))
        if others := [server.name for server in servers if server.preset != league_plans.ECHO]:
            raise LeagueError(f"{', '.join(others)}: the cases need an echo, and this is another protocol")
        code = subprocess.run([ROOT / "tools/autobahn-env"]).returncode
        if code:
            return code
        worst = max(map(tried, servers))
    PAGE.write_text(replaced(PAGE.read_text(), PART, block(league_servers.load())))
    return worst


class RefusedError(Exception):
    """A server refuses the suite's upgrade in every case; the message has its response."""


def tried(server: Server) -> int:
    """Runs the cases against a server and keeps the outcome; 1 where there is none."""
    print(f"autobahn: {server.name}", file=sys.stderr, flush=True)
    try:
        outcome = record(server, confirmed(server, run(server, ["*"])))
    except RefusedError as error:
        outcome = record(server, {}) | {"refused": str(error)}
    except (LeagueError, subprocess.TimeoutExpired) as error:
        print(f"autobahn: {error}", file=sys.stderr)
        return 1
    file_of(server).write_text(json.dumps(outcome, indent=2) + "\n")
    print(f"{server.name}: {summary(outcome)}", flush=True)
    return 0


def confirmed(server: Server, found: dict[str, Any]) -> dict[str, Any]:
    """The same with each failed case run a second time, by itself: the second verdict counts. Some cases wait for a
    second, which is too short where the machine is busy with other things."""
    failed = [case for case, one in found.items() if verdict(one) not in (STRICT, NON_STRICT, NO_VERDICT)]
    return found | run(server, failed) if failed else found


def run(server: Server, cases: Sequence[str]) -> dict[str, Any]:
    """What the suite says of these cases; `*` is all of them. Raises `LeagueError` where it left no report."""
    # Servers print each violation of the protocol that they find, and the suite makes hundreds.
    quiet = league_check.started(server, errors=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="autobahn-") as name, quiet as port:
        folder = Path(name)
        address = {"agent": server.name, "url": f"ws://127.0.0.1:{port}{server.path}"}
        excluded = {"cases": list(cases), "exclude-cases": list(EXCLUDED), "exclude-agent-cases": {}}
        spec = folder / "spec.json"
        spec.write_text(json.dumps({"outdir": str(folder / "reports"), "servers": [address]} | excluded))
        command: list[str | Path] = [WSTEST, "-m", "fuzzingclient", "-s", spec]
        # The modules of Python 3 that ours are found by are not for CPython 2.7.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
        file = folder / "reports/index.json"
        if not file.is_file():
            raise LeagueError(f"the suite left no report: {(done.stderr or done.stdout).strip()[-500:]}")
        found: dict[str, Any] = json.loads(file.read_text())[server.name]
        reports = [json.loads((file.parent / one["reportfile"]).read_text()) for one in found.values()]
        refusals = [refusal(one) for one in reports]
        if all(refusals):
            raise RefusedError(refusals[0])
        return found


def refusal(report: Mapping[str, Any]) -> str:
    """The status line with which a server refused the upgrade of a case; empty where it accepted it."""
    status = str(report["httpResponse"] or "").split("\r\n", 1)[0]
    return "" if " 101 " in status else status.removeprefix("HTTP/1.1 ") or "no response"


def record(server: Server, found: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome that is kept: how many cases a category has, and each case that is not strictly right."""
    verdicts = {case: verdict(one) for case, one in found.items()}
    counted = {case: one for case, one in verdicts.items() if one != NO_VERDICT}
    cases: dict[str, int] = {}
    for case in counted:
        cases[category(case)] = cases.get(category(case), 0) + 1
    return {
        "schema": 1,
        "server": server.name,
        "version": version(server),
        "suite": suite(),
        "excluded": list(EXCLUDED),
        "cases": {name: cases[name] for name in sorted(cases, key=int)},
        "others": {case: one for case, one in sorted(counted.items(), key=in_order) if one != STRICT},
    }


def verdict(found: Mapping[str, Any]) -> str:
    """The suite's verdict on a case: that on the messages, or where these are right, that on the close."""
    behavior, close = str(found["behavior"]), str(found["behaviorClose"])
    if behavior in (STRICT, NON_STRICT) and close not in (STRICT, NO_VERDICT):
        return f"close: {close}"
    return behavior


def category(case: str) -> str:
    return case.split(".", 1)[0]


def in_order(item: tuple[str, str]) -> list[int]:
    return [int(part) for part in item[0].split(".")]


def version(server: Server) -> str:
    if server.version:
        return server.version
    return league_servers.printed_version(server.name, server.version_command, league_check.how_to_build(server))


def suite() -> str:
    """The version of the suite, from its lock file."""
    (line,) = [line for line in LOCK.read_text().splitlines() if line.startswith("autobahntestsuite==")]
    return line.split("==")[1].split(" ")[0]


def file_of(server: Server) -> Path:
    return server.folder / "autobahn.json"


def counts(outcome: Mapping[str, Any], name: str) -> tuple[int, int, int]:
    """Strict, non-strict and failed cases of a category."""
    others = [one for case, one in outcome["others"].items() if category(case) == name]
    lenient = others.count(NON_STRICT)
    return outcome["cases"].get(name, 0) - len(others), lenient, len(others) - lenient


def summary(outcome: Mapping[str, Any]) -> str:
    if "refused" in outcome:
        return f"it refuses the suite's upgrade: {outcome['refused']}"
    strict, lenient, failed = map(sum, zip(*(counts(outcome, name) for name in outcome["cases"]), strict=True))
    return f"{strict} strict, {lenient} non-strict, {failed} failed"


def block(servers: Mapping[str, Server]) -> str:
    """The table of all servers that were tried, and what failed."""
    found = [json.loads(file_of(one).read_text()) for one in servers.values() if file_of(one).is_file()]
    outcomes = [one for one in found if "refused" not in one]
    if not outcomes:
        return "No run is published yet.\n"
    head = ["server", "version", *CATEGORIES.values(), "strict / non-strict / failed"]
    rows = markdown_table(head, [row(one) for one in outcomes])
    origin = (
        f"`autobahntestsuite` {outcomes[0]['suite']}, without its cases {', '.join(EXCLUDED)}. A cell has the cases"
        " that are strictly right, then those that are right but not strict, and those that failed."
    )
    failed = [f"- {one['server']}: {failures(one)}\n" for one in outcomes if failures(one)]
    missing = [one.name for one in servers.values() if one.preset == league_plans.ECHO and not file_of(one).is_file()]
    return (
        f"{origin}\n\n{rows}\n"
        + ("\nWhat failed:\n\n" + "".join(failed) if failed else "")
        + refusals(found)
        + (f"\nNot run yet: {', '.join(missing)}.\n" if missing else "")
    )


def refusals(found: Sequence[Mapping[str, Any]]) -> str:
    """The servers whose cases couldn't be run."""
    refusing = [f"{one['server']} {one['version']} ({one['refused']})" for one in found if "refused" in one]
    if not refusing:
        return ""
    return (
        "\nThese refuse the suite's upgrade, so that no case was run. It has `Upgrade: WebSocket`, and RFC 6455 (4.2.1)"
        f" compares that without regard to case: {', '.join(refusing)}.\n"
    )


def row(outcome: Mapping[str, Any]) -> list[str]:
    name = outcome["server"]
    cells = [cell(*counts(outcome, one)) for one in CATEGORIES]
    total = " / ".join(str(sum(column)) for column in zip(*(counts(outcome, one) for one in CATEGORIES), strict=True))
    return [f"[{name}](../services/league/{name}/README.md)", outcome["version"], *cells, total]


def cell(strict: int, lenient: int, failed: int) -> str:
    if not (strict or lenient or failed):
        return NONE
    return ", ".join(
        [f"{strict}"] + [f"{lenient} non-strict"] * bool(lenient) + [f"**{failed} failed**"] * bool(failed)
    )


def failures(outcome: Mapping[str, Any]) -> str:
    """The cases that failed, by the suite's verdict."""
    by_verdict: dict[str, list[str]] = {}
    for case, one in outcome["others"].items():
        if one != NON_STRICT:
            by_verdict.setdefault(one.lower(), []).append(case)
    return "; ".join(f"{one}: {listed(cases)}" for one, cases in by_verdict.items())


def listed(cases: Sequence[str]) -> str:
    """The cases, or how many of each category where they are many."""
    if len(cases) <= FEW:
        return ", ".join(cases)
    return ", ".join(
        f"{sum(category(case) == one for case in cases)} of {one}.*" for one in dict.fromkeys(map(category, cases))
    )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LeagueError as error:
        print(f"autobahn: {error}", file=sys.stderr)
        sys.exit(2)
