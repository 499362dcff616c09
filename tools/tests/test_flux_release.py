"""What the Flux test of the GitHub workflow commits, and how it reads the outcome."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FLUX = Path(__file__).resolve().parents[2] / "e2e/flux"


def load(name: str) -> ModuleType:
    """A script of e2e/flux as a module."""
    spec = importlib.util.spec_from_file_location(f"flux_{name}", FLUX / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_commit_has_the_examples_release_with_its_run_and_its_objectives() -> None:
    script = load("release")
    met, missed = (script.release("a", impossible=impossible)["spec"] for impossible in (False, True))
    assert met["driftDetection"]["mode"] == "enabled"
    assert met["test"]["enable"]
    assert (met["values"]["run"], missed["values"]["run"]) == ({"id": "a"}, {"id": "a"})
    objectives = [spec["values"]["plan"]["ladders"][0]["objectives"] for spec in (met, missed)]
    assert objectives[0] != objectives[1] == [script.IMPOSSIBLE]
    assert script.source("oci://registry/chart")["spec"]["url"] == "oci://registry/chart"


@pytest.mark.parametrize(
    ("run", "observed", "status", "expected"),
    [
        ("a", 3, "True", "True"),
        ("a", 3, "False", "False"),
        ("a", 3, "Unknown", "Unknown"),
        ("a", 2, "True", "Unknown"),
        ("b", 3, "True", "Unknown"),
    ],
)
def test_ready_counts_once_flux_has_dealt_with_the_values_of_the_run(
    run: str, observed: int, status: str, expected: str
) -> None:
    release: dict[str, Any] = {
        "metadata": {"generation": 3},
        "spec": {"values": {"run": {"id": run}}},
        "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": status}]},
    }
    assert load("ready").status(release, "a") == expected


def test_a_release_that_flux_has_not_seen_is_unknown() -> None:
    release = {"metadata": {"generation": 1}, "spec": {"values": {"run": {"id": "a"}}}}
    assert load("ready").status(release, "a") == "Unknown"
