"""Runs the examples of the pages that describe bundles against a bundle."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench_format.histogram import decode
from bench_format.schemas import Histogram, Run, TrialResult

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/FORMAT.md", "results/README.md")


def blocks(page: str, language: str) -> list[str]:
    """The fenced code blocks of a page in one language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


EXAMPLES = [(page, place, text) for page in PAGES for place, text in enumerate(blocks(page, "python"), 1)]


@pytest.mark.parametrize(("page", "place", "text"), EXAMPLES, ids=[f"{page}-{place}" for page, place, _ in EXAMPLES])
def test_python_examples_run_and_print(page: str, place: int, text: str, example_folder: Path) -> None:
    where = example_folder.parent.parent
    if not (where / "results").exists():
        (where / "results").symlink_to(example_folder.parent, target_is_directory=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analysis")}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{page}, example {place}: {run.stderr}"
    # The fixtures have no interval logs, so that example prints nothing.
    assert run.stdout or ".hlog" in text


@pytest.mark.parametrize("page", PAGES)
def test_json_examples_parse(page: str) -> None:
    for text in blocks(page, "json"):
        json.loads(text)


def test_the_histogram_on_the_page_is_one() -> None:
    (wire,) = [value for text in blocks("docs/FORMAT.md", "json") if isinstance(value := json.loads(text), dict)]
    assert decode(Histogram(**wire), "the page").count == wire["count"]
    assert wire["count"] == 3


@pytest.mark.parametrize("page", PAGES)
def test_every_field_that_the_tables_name_exists(page: str) -> None:
    known = set(TrialResult.__dataclass_fields__) | set(Run.__dataclass_fields__)
    text = (ROOT / page).read_text(encoding="utf-8")
    for heading in ("run.json", "result.json"):
        section = re.search(rf"^## `{re.escape(heading)}`\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
        if section is None:
            continue
        named = {
            name
            for row in re.findall(r"^\| (`.*?) \|", section[1], re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)
        }
        assert named
        assert named <= known
