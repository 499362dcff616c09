"""Bundles that several tests read. They are written once per session; a test that introduces a fault builds its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundles.example import example
from ws_ladder_analysis.load import Bundle, read_bundle
from ws_ladder_analysis.report import Report, write_report


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the example bundle, which has every kind of trial."""
    return example(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def example_bundle(example_folder: Path) -> Bundle:
    """The example bundle, parsed."""
    return read_bundle(example_folder)


@pytest.fixture(scope="session")
def example_report(example_folder: Path) -> tuple[Path, Report]:
    """The path of the example's HTML page, and its report."""
    return write_report(example_folder)
