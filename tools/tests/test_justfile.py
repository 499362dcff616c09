"""The justfile: what a user gives to a recipe reaches the program as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def recipes() -> dict[str, tuple[list[str], str]]:
    """Parameters and body of each recipe by its name."""
    found: dict[str, tuple[list[str], str]] = {}
    text = (ROOT / "justfile").read_text()
    recipe = r"^@?([a-z_][^\n:=]*):(?!=)[^\n]*\n((?:    [^\n]*\n|\n(?=    ))*)"
    for header, body in re.findall(recipe, text, re.MULTILINE):
        name, *parameters = header.split(" ")
        found[name] = ([parameter.split("=")[0].strip("*+") for parameter in parameters], body)
    return found


def test_no_recipe_puts_a_parameter_into_the_text_of_its_command() -> None:
    with_parameters = {name: found for name, found in recipes().items() if found[0]}
    assert len(with_parameters) > 20
    for name, (parameters, body) in with_parameters.items():
        written = re.findall(r"\{\{\s*([A-Za-z_]+)\s*\}\}", body)
        assert not set(written) & set(parameters), (
            f'{name}: use "$1" or "$@"; in braces the shell would run what is in it'
        )


@pytest.mark.parametrize("value", ["x; touch marker", "$(touch marker)", "two words"])
def test_a_parameter_is_one_argument_with_any_content(value: str, tmp_path: Path) -> None:
    (tmp_path / "justfile").write_text((ROOT / "justfile").read_text())
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nfor argument in "$@"; do printf "%s\\n" "$argument"; done\n')
    python.chmod(0o755)
    printed = subprocess.run([ROOT / "justw", "--version"], capture_output=True, text=True, check=True).stdout
    version = printed.split()[1]
    just = ROOT / ".tools" / f"just-{version}" / "bin" / "just"
    options = ["--justfile", str(tmp_path / "justfile"), "--working-directory", str(tmp_path), "--no-deps"]
    command = [str(just), *options, "analyze-results", value]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-m", "ws_ladder_analysis", value]
    assert not list(tmp_path.rglob("marker"))


@pytest.mark.parametrize(("code", "printed"), [(0, ""), (7, "compiling\nerror: no\n")])
def test_the_build_of_the_extension_prints_only_what_a_failure_printed(code: int, printed: str, tmp_path: Path) -> None:
    script = tmp_path / "tools" / "build-extension"
    script.parent.mkdir()
    for name in ("build-extension", "newer-than-engine"):
        shutil.copy(ROOT / "tools" / name, script.parent)
    (tmp_path / "services" / "wse-server").mkdir(parents=True)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    maturin = programs / "maturin"
    maturin.write_text(f"#!/bin/sh\necho compiling\necho error: no >&2\nexit {code}\n")
    maturin.chmod(0o755)
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", printed)


def test_the_extension_is_installed_again_only_when_something_it_is_made_of_is_newer(tmp_path: Path) -> None:
    script = tmp_path / "tools" / "build-extension"
    source = tmp_path / "services" / "wse-server" / "engine" / "lib.rs"
    others = [
        tmp_path / name
        for name in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "services/contract/lib.rs", "tools/build-wheel")
    ]
    programs = tmp_path / ".venv" / "bin"
    for file in (script, source, *others, programs / "activate", programs / "maturin"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for name in ("build-extension", "newer-than-engine"):
        shutil.copy(ROOT / "tools" / name, script.parent)
    (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    maturin = programs / "maturin"
    maturin.write_text(f"#!/bin/sh\necho built >> {tmp_path}/builds\n")
    maturin.chmod(0o755)

    def builds() -> int:
        subprocess.run(["bash", str(script)], check=True)
        return len((tmp_path / "builds").read_text().splitlines())

    long_ago = 1_000_000_000
    for file in (script, source, *others):
        os.utime(file, (long_ago, long_ago))
    assert builds() == 1
    assert builds() == 1
    later = time.time() + 60
    os.utime(source, (later, later))
    assert builds() == 2


def test_what_judges_time_waits_for_what_loads_the_machine(tmp_path: Path) -> None:
    turn = [str(ROOT / "tools" / "turn")]
    beside = "echo begins; read line; echo ends >> order"
    pipe = subprocess.PIPE
    shared = subprocess.Popen([*turn, "shared", "sh", "-c", beside], cwd=tmp_path, stdin=pipe, stdout=pipe, text=True)
    assert shared.stdin is not None
    assert shared.stdout is not None
    assert shared.stdout.readline() == "begins\n"
    again = subprocess.run([*turn, "shared", "echo", "again"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (again.stdout, again.stderr) == ("again\n", "")
    alone = subprocess.Popen(
        [*turn, "alone", "sh", "-c", "echo measures >> order"], cwd=tmp_path, stderr=pipe, text=True
    )
    assert alone.stderr is not None
    assert "waits until the other recipes of this checkout have ended" in alone.stderr.readline()
    assert not (tmp_path / "order").exists()
    shared.communicate("\n")
    alone.communicate()
    assert (shared.returncode, alone.returncode) == (0, 0)
    assert (tmp_path / "order").read_text() == "ends\nmeasures\n"
