""".ci/cargo.toml: every crate of the workspace is compiled for tests as in the profile `dev`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def read(file: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / file).read_text())


def test_each_crate_of_the_workspace_checks_itself_in_tests_and_has_its_level_of_development() -> None:
    workspace = read("Cargo.toml")
    members = [read(f"{member}/Cargo.toml")["package"]["name"] for member in workspace["workspace"]["members"]]
    own = workspace["profile"]["dev"]["package"]
    assert read(".ci/cargo.toml")["profile"]["bench"]["package"] == {
        name: {"opt-level": own.get(name, {}).get("opt-level", 0), "debug-assertions": True, "overflow-checks": True}
        for name in members
    }
