"""tools/newer-than-engine: what is made of the engine's package is made again if and only if its sources are newer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("Cargo.lock", "Cargo.toml", "rust-toolchain.toml", "tools/build-extension", "tools/build-wheel")
SOURCE = "services/wse-server/engine/src/frame.rs"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which `made` is newer than each source by a minute."""
    for name in (*FILES, SOURCE, "services/contract/src/lib.rs", "made"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (1060, 1060) if name == "made" else (1000, 1000))
    shutil.copy(ROOT / "tools/newer-than-engine", tmp_path / "tools")
    return tmp_path


def changed(checkout: Path) -> bool:
    done = subprocess.run(
        ["tools/newer-than-engine", "made"], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")
    return done.returncode != 0


def test_what_is_newer_than_all_sources_is_not_made_again(checkout: Path) -> None:
    assert not changed(checkout)


@pytest.mark.parametrize("name", [*FILES, SOURCE, "services/contract/src/lib.rs"])
def test_a_newer_source_has_it_made_again(checkout: Path, name: str) -> None:
    os.utime(checkout / name, (1120, 1120))
    assert changed(checkout)


def test_what_is_missing_is_made(checkout: Path) -> None:
    (checkout / "made").unlink()
    assert changed(checkout)


@pytest.mark.parametrize("name", ["module.cpython-311.pyc", "module.abi3.so", ".ruff_cache/0.17/1"])
def test_what_python_its_linters_and_maturin_write_beside_sources_is_no_change(checkout: Path, name: str) -> None:
    file = checkout / "services/wse-server" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    assert not changed(checkout)


def test_what_cannot_be_compared_is_made_again(checkout: Path) -> None:
    (checkout / "Cargo.lock").unlink()
    assert (
        subprocess.run(["tools/newer-than-engine", "made"], cwd=checkout, capture_output=True, check=False).returncode
        != 0
    )
