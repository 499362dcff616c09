"""The recorded conformance result of a gateway, and whether it is still valid for the checkout.

`services/<name>/conformance.json` has the result of each case and a hash of all that it depends on: the gateway's
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
# Source folders of a gateway outside its own folder.
SHARED_SOURCES = {"python-fastapi-nogil": "services/python-fastapi/src"}
# Gateways that each CI run checks by all cases although nothing changed.
IN_TURN = 2


def inputs(service: Service) -> str:
    """The hash (64 hexadecimal digits) of all files that a gateway's conformance depends on."""
    digest = hashlib.sha256()
    own = [str(service.folder.relative_to(ROOT)), *filter(None, [SHARED_SOURCES.get(service.name)])]
    for file in tracked([*own, *TOOL, MESSAGES]):
        if not file.endswith(f"/{NAME}"):
            digest.update(f"{file}\0".encode() + hashlib.sha256((ROOT / file).read_bytes()).digest())
    digest.update(contract().encode())
    digest.update(json.dumps(service.exceptions, sort_keys=True).encode())
    return digest.hexdigest()


def contract() -> str:
    """The part of services/README.md about gateways; the rest is about other services."""
    return (ROOT / CONTRACT).read_text().partition("\n## Gateways\n")[2]


def tracked(paths: list[str]) -> list[str]:
    """Files in these places that are tracked by git or new, but not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({file for file in listed if (ROOT / file).is_file()})


def write(service: Service, before: str) -> Path:
    """Records the result that `ladder conformance --results` wrote; `before`: the hash of the inputs at its start."""
    [result] = json.loads((RESULTS / f"{service.name}.json").read_text())["services"]
    path = service.folder / NAME
    cases = {case["name"]: case["status"] for case in result["cases"]}
    record = {"inputs": before, "level": "strict", "exceptions": service.exceptions, "cases": cases}
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def stale(service: Service) -> str:
    """The reason why the record isn't valid for the checkout; empty when it is valid."""
    path = service.folder / NAME
    if not path.exists():
        return "it has no record"
    if json.loads(path.read_text())["inputs"] != inputs(service):
        return "its record is of other inputs"
    return ""


def divide(services: list[Service]) -> tuple[list[tuple[str, Service]], list[Service]]:
    """The services to check by all cases, each with the reason, and the others."""
    turn = {each.name for each in in_turn(services, commits())}
    reasons = [(stale(each) or ("it is its turn" if each.name in turn else ""), each) for each in services]
    return [(reason, each) for reason, each in reasons if reason], [each for reason, each in reasons if not reason]


def in_turn(services: list[Service], number: int) -> list[Service]:
    """`IN_TURN` services; consecutive numbers select different ones, so that each has its turn."""
    count = len(services)
    return [services[(number * IN_TURN + at) % count] for at in range(min(IN_TURN, count))]


def commits() -> int:
    """The number of commits up to HEAD: a number that increases with each commit."""
    done = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)
