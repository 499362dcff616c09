"""Runs the examples of the documentation, so that none of them can grow old unnoticed.

In every Markdown file of the project: `json` blocks parse, plans in `yaml` blocks pass `ladder plan check`, `python`
blocks run, commands in `sh` blocks name recipes, programs and flags that exist, and links to files lead somewhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target/release"
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


class Example(NamedTuple):
    """One fenced block and where it stands."""

    file: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split()]


def examples(*languages: str) -> Iterator[Example]:
    for file in documents():
        text = file.read_text()
        for match in FENCE.finditer(text):
            if match.group(1) in languages:
                yield Example(file, text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2))


def of(*languages: str) -> pytest.MarkDecorator:
    """All examples in these languages, with the mark `cluster` where commands need ladder's part for clusters."""
    found = [
        pytest.param(example, marks=[pytest.mark.cluster] if example.file.is_relative_to(ROOT / "charts") else [])
        for example in examples(*languages)
    ]
    return pytest.mark.parametrize("example", found, ids=str)


@of("json")
def test_json_examples_parse(example: Example) -> None:
    json.loads(example.text)


@of("toml")
def test_toml_examples_parse(example: Example) -> None:
    tomllib.loads(example.text)


@of("yaml")
def test_plan_examples_pass_the_plan_check(example: Example, tmp_path: Path) -> None:
    if "ladders:" not in example.text:
        pytest.fail(f"{example}: a yaml block that is not a whole plan; use another fence, such as `text`")
    plan = tmp_path / "example.yaml"
    plan.write_text(example.text)
    check = subprocess.run(
        [RELEASE / "ladder", "plan", "check", plan], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


@of("python")
def test_python_examples_run(example: Example) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("analysis", "loadgen/bench-format/python")),
    }
    run = subprocess.run(
        [sys.executable, "-c", example.text], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@cache
def recipes() -> frozenset[str]:
    listed = subprocess.run([ROOT / "justw", "--summary"], cwd=ROOT, capture_output=True, text=True, check=True)
    return frozenset(listed.stdout.split())


@cache
def flags(*command: str) -> frozenset[str]:
    """Every flag that a client's help names."""
    folder = ROOT / "loadgen/typescript" if command[0] == "npx" else ROOT
    asked = subprocess.run([*command, "--help"], cwd=folder, capture_output=True, text=True, check=True)
    return frozenset(re.findall(r"--[a-z][a-z0-9-]*", asked.stdout))


def check_flags(example: Example, words: list[str]) -> None:
    """A client of an interpreter: the program exists and knows the flags."""
    program = next(place for place, word in enumerate(words) if word.endswith((".ts", ".py")))
    used = {word.partition("=")[0] for word in words[program + 1 :] if word.startswith("--")}
    unknown = used - flags(*words[: program + 1])
    assert not unknown, f"{example}: {shlex.join(words)}: no flag {', '.join(sorted(unknown))}"


def check_command(example: Example, words: list[str]) -> None:
    program = Path(words[0]).name
    if program in {"justw", "just"}:
        recipe = next((word for word in words[1:] if not word.startswith("-")), "default")
        assert recipe in recipes(), f"{example}: no recipe {recipe!r}"
    elif program in {"ladder", "ws-bench", "wse-bench", "stt-loadgen", "self-test-service", "floor"}:
        # Read up to its end, where it asks for help: what stands before that was understood, and nothing is done.
        command = [str(RELEASE / program), *words[1:], "--help"]
        asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert asked.returncode == 0, f"{example}: {shlex.join(words)}\n{asked.stderr}"
    elif words[:2] == ["npx", "tsx"] or words[0] == ".venv/bin/python":
        check_flags(example, words)


@of("sh")
def test_commands_name_what_exists(example: Example) -> None:
    for line in example.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        words = list(words[next((i for i, word in enumerate(words) if "=" not in word), 0) :])
        if words:
            check_command(example, words)


@pytest.mark.parametrize("file", documents(), ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    broken = [link for link in LINK.findall(file.read_text()) if not (file.parent / link).exists()]
    assert not broken, f"{file.relative_to(ROOT)} links to {broken}"


def test_each_failure_of_a_cluster_names_a_test_that_causes_it_or_says_that_none_does() -> None:
    rows = re.findall(r"^\| .* \| ([^|]+) \|$", section("docs/KUBERNETES.md", "When something fails"), re.MULTILINE)
    assert rows[:2] == ["caused by", "---"]
    files = [*(ROOT / "e2e/tests").glob("test_*.py"), *(ROOT / "operator/kubernetes").rglob("*.rs")]
    tests = "".join(file.read_text() for file in sorted(files))
    for named in rows[2:]:
        if named != "not on a cluster":
            name = named.strip("`")
            assert f"def {name}(" in tests or f"fn {name}(" in tests, named


def section(document: str, title: str) -> str:
    """The text below a heading of the second level."""
    return (ROOT / document).read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
