"""Bundles that several tests read. Written once a session; a test that plants a fault builds its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundles.example import example
from ws_ladder_analysis.load import Bundle, read_bundle
from ws_ladder_analysis.report import Report, write_report


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with everything in it."""
    return example(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def example_bundle(example_folder: Path) -> Bundle:
    """The same, read."""
    return read_bundle(example_folder)


@pytest.fixture(scope="session")
def example_report(example_folder: Path) -> tuple[Path, Report]:
    """Its report, and where the page is."""
    return write_report(example_folder)
