"""Checks that the chart names no image that a release lacks. Run by `just chart-check`, with helm on the PATH."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_images import names
from rendering import CHART, FANOUT, GATEWAY, SESSIONS, YOUR_SERVICE, render

ROOT = Path(__file__).resolve().parents[3]
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
VERSION: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
WEBSOCKET = "wse"
# Each plan of values files, and one that names every gateway at once.
EVERY_GATEWAY = [name for name, service in VALUES["services"].items() if service["protocol"] != WEBSOCKET]
RENDERINGS = [
    [],
    FANOUT,
    GATEWAY,
    YOUR_SERVICE,
    ["--set", f"plan.services={{{','.join(EVERY_GATEWAY)}}}", "--set-json", f"plan.ladders={SESSIONS}"],
]


def images_in(rendered: object) -> Iterator[str]:
    """The value of each key `image`, at any depth."""
    if isinstance(rendered, dict):
        for key, value in rendered.items():
            if key == "image" and isinstance(value, str):
                yield value
            yield from images_in(value)
    elif isinstance(rendered, list):
        for each in rendered:
            yield from images_in(each)


def released() -> set[str]:
    """The names of the images that a release builds."""
    listed = subprocess.run([ROOT / "tools/images", "--list"], capture_output=True, text=True, check=True)
    return {f"{VALUES['image']['registry']}/{name}:{VERSION}" for name in listed.stdout.split()}


@pytest.mark.parametrize("values", RENDERINGS, ids=["default", "fanout", "gateway", "your service", "every gateway"])
def test_every_image_that_the_chart_renders_is_built_by_a_release(values: list[str]) -> None:
    rendered = set(images_in(render(*values)))
    assert rendered
    assert rendered <= released()


def test_every_image_that_values_can_name_is_built_by_a_release() -> None:
    possible = set(names(VALUES, VERSION))
    assert possible <= released()
    # What a release builds and no values name: the ladder of compose.yaml.
    assert {name.rpartition("/")[2] for name in released() - possible} == {f"ladder:{VERSION}"}


def test_the_list_of_possible_images_has_all_that_is_rendered() -> None:
    rendered = {image for values in RENDERINGS for image in images_in(render(*values))}
    assert rendered <= set(names(VALUES, VERSION))
