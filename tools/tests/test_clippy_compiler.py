"""tools/clippy-compiler: tests are compiled with clippy, programs by the compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRAPPER = str(ROOT / "tools/clippy-compiler")


@pytest.fixture
def called(tmp_path: Path) -> Path:
    """A folder of programs that print their name and arguments."""
    for name in ("clippy-driver", "rustc"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name}: $*"\n')
        program.chmod(0o755)
    return tmp_path


def compiled(called: Path, *options: str, out: str = "/x/target/build/release/deps") -> str:
    """What is printed where cargo has a crate compiled with these options."""
    command = [WRAPPER, str(called / "rustc"), "--crate-name", "judge", *options, "--out-dir", out, "-L", "/x/deps"]
    environ = os.environ | {"PATH": f"{called}:{os.environ['PATH']}"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("options", [(), ("-C", "opt-level=2", "-C", "debug-assertions=on")])
def test_what_has_debug_assertions_is_compiled_with_clippy_and_warnings_are_errors(
    called: Path, options: tuple[str, ...]
) -> None:
    printed = compiled(called, *options)
    assert printed.startswith(f"clippy-driver: {called}/rustc --crate-name judge ")
    assert printed.endswith(" -D warnings\n")


@pytest.mark.parametrize("options", [("-C", "opt-level=1"), ("-C", "debug-assertions=off")])
def test_programs_are_compiled_as_ever(called: Path, options: tuple[str, ...]) -> None:
    assert as_ever(compiled(called, *options))


def test_fuzz_targets_and_cargos_questions_are_left_to_the_compiler(called: Path) -> None:
    assert as_ever(compiled(called, out="/x/fuzz/target/x86_64-unknown-linux-gnu/release/deps"))
    environ = os.environ | {"PATH": f"{called}:{os.environ['PATH']}"}
    asked = subprocess.run(
        [WRAPPER, str(called / "rustc"), "-vV"], env=environ, capture_output=True, text=True, check=True
    )
    assert asked.stdout == "rustc: -vV\n"


def as_ever(printed: str) -> bool:
    return printed.startswith("rustc: --crate-name judge ") and "warnings" not in printed


def test_a_lint_of_clippy_fails_the_build_of_a_test(tmp_path: Path) -> None:
    """With the real programs: what only clippy finds is an error, and what it lets pass becomes code."""
    out = tmp_path / "deps"
    source = tmp_path / "lib.rs"
    command = [WRAPPER, "rustc", "--crate-type", "rlib", "--out-dir", str(out), str(source)]
    source.write_text("pub fn first(of: &Vec<u8>) -> u8 { of[0] }\n")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "clippy::ptr-arg" in done.stderr or "clippy::ptr_arg" in done.stderr
    source.write_text("pub fn first(of: &[u8]) -> u8 { of[0] }\n")
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (out / "liblib.rlib").is_file()
