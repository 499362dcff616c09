"""tools/cargo-for-maturin: in CI the binding is compiled together with the programs, and takes their dependencies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "--workspace --bins"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a cargo that prints its arguments."""
    cargo = tmp_path / "cargo"
    cargo.write_text('#!/bin/sh\necho "$*"\n')
    cargo.chmod(0o755)
    return tmp_path


def called(folder: Path, *arguments: str) -> str:
    """What cargo is called with."""
    environ = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "ALL_PROGRAMS": PROGRAMS}
    command = [str(ROOT / "tools/cargo-for-maturin"), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def test_the_library_is_built_with_all_programs(folder: Path) -> None:
    asked = [
        "rustc",
        "--profile",
        "release",
        "--message-format",
        "json-render-diagnostics",
        "--manifest-path",
        "a b/Cargo.toml",
    ]
    of_maturin = [*asked, "--lib", "--crate-type", "cdylib", "--", "-C", "strip=symbols"]
    assert called(folder, *of_maturin) == " ".join(["build", *asked[1:], "--lib", PROGRAMS])


def test_everything_else_is_left_to_cargo(folder: Path) -> None:
    assert called(folder, "metadata", "--format-version", "1", "--", "x") == "metadata --format-version 1 -- x"
