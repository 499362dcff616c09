"""Prints the example's source and release for Flux with the small plan of the end-to-end test.

Usage: release.py --chart URL --run ID [--impossible]; `--impossible` gives the plan an objective that no service meets.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "charts/ws-ladder/flux"
IMPOSSIBLE = {"figure": "delivered_per_second", "at_least": 1_000_000_000}


def source(chart: str) -> dict[str, Any]:
    """The example's source, at a registry without TLS."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "source.yaml").read_text())
    found["spec"].update({"url": chart, "insecure": True, "interval": "1m"})
    return found


def release(run: str, *, impossible: bool) -> dict[str, Any]:
    """The example's release with the values of the end-to-end test."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "release.yaml").read_text())
    values = yaml.safe_load((ROOT / "e2e/values.yaml").read_text())
    values["run"] = {"id": run}
    if impossible:
        values["plan"]["ladders"][0]["objectives"] = [IMPOSSIBLE]
    found["spec"]["values"] = values
    return found


def main() -> None:
    """Prints both as YAML documents; JSON is YAML."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chart", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--impossible", action="store_true")
    chosen = parser.parse_args()
    for manifest in (source(chosen.chart), release(chosen.run, impossible=chosen.impossible)):
        print("---")
        print(json.dumps(manifest, indent=2))


if __name__ == "__main__":
    main()
