"""Prints the status of a HelmRelease's condition Ready once Flux has dealt with the values of a run: True or False.

Usage: kubectl get helmrelease NAME -o json | ready.py RUN. Prints `Unknown` before that.
"""

from __future__ import annotations

import json
import sys
from typing import Any

# While Flux installs or tests, Ready is Unknown.
ENDED = ("True", "False")


def status(release: dict[str, Any], run: str) -> str:
    """The condition's status for the run."""
    found = release.get("status", {})
    is_observed = found.get("observedGeneration") == release["metadata"]["generation"]
    if release["spec"]["values"]["run"]["id"] != run or not is_observed:
        return "Unknown"
    statuses = [one["status"] for one in found.get("conditions", []) if one["type"] == "Ready"]
    return statuses[0] if statuses and statuses[0] in ENDED else "Unknown"


if __name__ == "__main__":
    print(status(json.load(sys.stdin), sys.argv[1]))
