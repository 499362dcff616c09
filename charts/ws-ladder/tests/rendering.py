"""Renders the chart as `helm template` does, with values for each kind of service that it knows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[1]
YOUR_SERVICE = ["-f", str(CHART / "values-your-service.yaml")]
FANOUT = ["-f", str(CHART / "values-fanout-example.yaml")]
SESSIONS = (
    '[{"workload": "sessions", "tiers": [5], "load": {"model": "sessions", "ramp_seconds": 1, "spread_ms": 100}}]'
)
GATEWAY = ["--set", "plan.services={rust-sync}", "--set-json", f"plan.ladders={SESSIONS}"]


def render(*values: str) -> list[dict[str, Any]]:
    """The objects of a release in the namespace `lab`."""
    command = ["helm", "template", "bench", str(CHART), "--namespace", "lab", *values]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [document for document in yaml.safe_load_all(text) if document]
