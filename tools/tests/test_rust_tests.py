"""Which programs tools/rust_tests.py runs, and what it says of those that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rust_tests


def artifact(name: str, *, executable: str | None, test: bool) -> str:
    target = {"kind": ["test"], "name": name}
    return json.dumps(
        {
            "reason": "compiler-artifact",
            "manifest_path": "/crates/some/Cargo.toml",
            "target": target,
            "profile": {"test": test},
            "executable": executable,
        }
    )


def test_only_test_programs_are_run_each_in_the_folder_of_its_package() -> None:
    messages = [
        artifact("whole", executable="/target/whole-1", test=True),
        artifact("ladder", executable="/target/ladder", test=False),
        artifact("library", executable=None, test=True),
        json.dumps({"reason": "build-finished", "success": True}),
    ]
    [program] = rust_tests.programs_of("\n".join(messages))
    assert program == rust_tests.Program(Path("/target/whole-1"), Path("/crates/some"), "some test whole")


def test_the_output_of_a_program_that_fails_is_printed_with_its_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "fails"
    program.write_text('#!/bin/sh\necho "in $PWD, $CARGO_MANIFEST_DIR"\necho reason >&2\nexit 101\n')
    program.chmod(0o755)
    assert rust_tests.run(rust_tests.Program(program, tmp_path, "some test fails")) == 101
    printed = capfd.readouterr().out
    assert printed.startswith("some test fails (")
    assert "exit code 101" in printed
    assert f"in {tmp_path}, {tmp_path}\nreason\n" in printed
