"""Running Rust's tests several programs at a time, with a package of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Each compiles a package, up to three times.
SECONDS = 300
pytestmark = pytest.mark.timeout(SECONDS)

TOOL = Path(__file__).resolve().parents[1] / "rust_tests.py"
MANIFEST = '[package]\nname = "tried"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n'
PASSES = """#[test]
fn it_holds() { assert_eq!(std::env::current_dir().unwrap().as_os_str(), env!("CARGO_MANIFEST_DIR")) }
"""
FAILS = '#[test]\nfn it_never_holds() { panic!("a fault") }\n'
# As on a busy machine: it holds once nothing runs beside it.
FAILS_ONCE = """#[test]
fn it_holds_the_second_time() { std::fs::remove_file("busy").expect_err("the machine is busy"); }
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text(MANIFEST)
    shutil.copy(TOOL.parents[1] / "rust-toolchain.toml", tmp_path)
    (tmp_path / "src/lib.rs").write_text("")
    (tmp_path / "tests/passes.rs").write_text(PASSES)
    return tmp_path


def rust_tests(package: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *options]
    return subprocess.run(command, cwd=package, capture_output=True, text=True, check=False, timeout=SECONDS)


def test_every_program_runs_in_the_folder_of_its_package_and_one_that_passes_only_alone_is_named(package: Path) -> None:
    (package / "tests/late.rs").write_text(FAILS_ONCE)
    (package / "busy").touch()
    done = rust_tests(package, "--at-a-time", "3")
    assert done.returncode == 0, done.stderr
    assert "test it_holds ... ok" in done.stdout
    assert "the machine is busy" in done.stdout
    # The library's own, those of `tests`, and the examples in the documentation.
    assert "all 4 programs of tests passed; 1 of them only alone: late (test of" in done.stdout


def test_examples_in_the_documentation_are_tested_with_what_is_compiled_already(package: Path) -> None:
    # As ring's build script has it.
    (package / "build.rs").write_text('fn main() { println!("cargo::rerun-if-env-changed=CARGO_MANIFEST_DIR"); }\n')
    done = rust_tests(package)
    assert done.returncode == 0, done.stderr
    assert "examples in the documentation: passed" in done.stdout
    assert "Compiling" not in done.stdout


def test_what_fails_twice_fails_the_run_with_its_name_and_output(package: Path) -> None:
    (package / "tests/wrong.rs").write_text(FAILS)
    done = rust_tests(package)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("failed: wrong (test of")
    assert done.stdout.count("a fault") == 2
    assert "test it_holds ... ok" in done.stdout


def test_what_does_not_compile_fails_with_the_compilers_errors(package: Path) -> None:
    (package / "src/lib.rs").write_text("fn wrong() -> u8 { }")
    done = rust_tests(package)
    assert done.returncode != 0
    assert "mismatched types" in done.stderr


def test_options_for_cargo_choose_what_is_tested(package: Path) -> None:
    (package / "tests/wrong.rs").write_text(FAILS)
    done = rust_tests(package, "--", "--test", "passes")
    assert done.returncode == 0, done.stderr
    assert "all 1 programs of tests passed\n" in done.stdout


def test_a_number_of_programs_that_makes_no_sense_is_refused(package: Path) -> None:
    done = rust_tests(package, "--at-a-time", "0")
    assert done.returncode == 2
    assert "--at-a-time: 0 is no number of programs; give 1 or more" in done.stderr
