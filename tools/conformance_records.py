"""The kept result of a gateway's conformance, and whether it still says something about what is checked out.

`services/<name>/conformance.json` has the result of each case and the hash of what it depends on: the gateway's
folder and its exceptions, the contract, the golden messages and the conformance tool.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

from service_registry import ROOT, Service

RESULTS = ROOT / "target/conformance"
NAME = "conformance.json"
TOOL = ["loadgen/stt-bench/src/conformance.rs", "loadgen/stt-bench/src/conformance"]
MESSAGES = "services/testdata/stt-messages.json"
CONTRACT = "services/README.md"
# Code that a gateway has from outside its folder.
ELSEWHERE = {"python-fastapi-nogil": "services/python-fastapi/src"}
# In each run of CI so many gateways are checked by all cases although nothing changed.
IN_TURN = 2


def inputs(service: Service) -> str:
    """The hash of everything that a gateway's conformance depends on, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    own = [str(service.folder.relative_to(ROOT)), *filter(None, [ELSEWHERE.get(service.name)])]
    for file in tracked([*own, *TOOL, MESSAGES]):
        if not file.endswith(f"/{NAME}"):
            digest.update(f"{file}\0".encode() + hashlib.sha256((ROOT / file).read_bytes()).digest())
    digest.update(contract().encode())
    digest.update(json.dumps(service.exceptions, sort_keys=True).encode())
    return digest.hexdigest()


def contract() -> str:
    """What services/README.md says of gateways; the rest of it is about other services."""
    return (ROOT / CONTRACT).read_text().partition("\n## Gateways\n")[2]


def tracked(places: list[str]) -> list[str]:
    """Files that belong to the project, committed or not yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *places]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({file for file in listed if (ROOT / file).is_file()})


def write(service: Service, before: str) -> Path:
    """Keeps the result that `ladder conformance --results` left; `before`: the inputs when the check began."""
    [result] = json.loads((RESULTS / f"{service.name}.json").read_text())["services"]
    path = service.folder / NAME
    cases = {case["name"]: case["status"] for case in result["cases"]}
    record = {"inputs": before, "level": "strict", "exceptions": service.exceptions, "cases": cases}
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def stale(service: Service) -> str:
    """Why the record says nothing about what is checked out; empty when it does."""
    path = service.folder / NAME
    if not path.exists():
        return "it has no record"
    if json.loads(path.read_text())["inputs"] != inputs(service):
        return "its record is of other inputs"
    return ""


def divide(services: list[Service]) -> tuple[list[tuple[str, Service]], list[Service]]:
    """Those to check by all cases, each with the reason, and the others."""
    turn = {each.name for each in in_turn(services, commits())}
    reasons = [(stale(each) or ("it is its turn" if each.name in turn else ""), each) for each in services]
    return [(reason, each) for reason, each in reasons if reason], [each for reason, each in reasons if not reason]


def in_turn(services: list[Service], number: int) -> list[Service]:
    """Two others with each number, so that every one has its turn."""
    count = len(services)
    return [services[(number * IN_TURN + at) % count] for at in range(min(IN_TURN, count))]


def commits() -> int:
    """How many commits led to what is checked out: a number that goes on by itself."""
    done = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)
