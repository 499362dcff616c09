"""The steps of docs/ADD-A-SERVICE.md: a new gateway is created, built and tested, and meets the contract."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import new_gateway
import pytest

ROOT = Path(__file__).resolve().parents[2]
# The files of a checkout that the steps need.
PLACES = [
    "tools",
    "services/go-nethttp",
    "services/testdata",
    "services/services.toml",
    "services/README.md",
    "versions.lock.toml",
]
NAME = "go-tiny"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A partial copy of the checkout, so that the test adds nothing to the original."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PLACES]
    for file in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        target = tmp_path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, target)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def run(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True)


# Compiling takes a minute on a busy machine.
@pytest.mark.timeout(600)
def test_a_new_gateway_is_built_tested_and_keeps_the_contract(checkout: Path) -> None:
    made = run(checkout, "tools/new-gateway", "go", NAME)
    assert made.returncode == 0, made.stderr
    assert "[services.go-tiny.build]" in (checkout / "services/services.toml").read_text()
    tasks = [sys.executable, "tools/service_tasks.py"]
    built = run(checkout, *tasks, "build", NAME)
    if built.returncode == 3:
        pytest.skip(f"its toolchain can't be had here: {built.stderr}")
    assert built.returncode == 0, built.stderr
    tested = run(checkout, *tasks, "test", NAME)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    registry = tomllib.loads((checkout / "services/services.toml").read_text())
    tool = [str(ROOT / "target/release/stt-conformance"), "--level", "core", "--start", NAME, "--"]
    checked = run(checkout, *tool, *registry["services"][NAME]["command"])
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("language", "name", "said"),
    [
        ("cobol", NAME, "there is no gateway in 'cobol' to begin from; there are cpp, elixir, go,"),
        ("go", "Go_Tiny", "'Go_Tiny' is not a name of a gateway"),
        ("go", "go-nethttp", "services/go-nethttp is there already"),
        ("go", "rust-axum", "services/services.toml has a service 'rust-axum' already"),
    ],
)
def test_an_impossible_gateway_is_refused_with_the_remedy(checkout: Path, language: str, name: str, said: str) -> None:
    refused = run(checkout, "tools/new-gateway", language, name)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_a_name_is_replaced_in_every_spelling() -> None:
    text = "go-nethttp go_nethttp GoNethttp"
    assert new_gateway.renamed(text, "go-nethttp", NAME) == "go-tiny go_tiny GoTiny"
