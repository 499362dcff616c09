"""Prints every image that a chart's values can name, one a line: registry, repository, and tag or digest.

Usage: chart_images.py VALUES.yaml APP_VERSION
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    values = yaml.safe_load(Path(sys.argv[1]).read_text())
    print("\n".join(names(values, sys.argv[2])))
    return 0


def names(values: dict[str, Any], app_version: str) -> list[str]:
    """The names as the chart's template `ws-ladder.image` makes them, sorted, each once."""
    registry = values["image"]["registry"]
    return sorted({name(registry, image, app_version) for image in images(values)})


def name(registry: str, image: dict[str, str], app_version: str) -> str:
    repository = f"{registry}/{image['repository']}" if registry else image["repository"]
    if image.get("digest"):
        return f"{repository}@{image['digest']}"
    return f"{repository}:{image.get('tag') or app_version}"


def images(values: object) -> Iterator[dict[str, str]]:
    """All mappings with a `repository`, at any depth."""
    if isinstance(values, dict):
        if "repository" in values:
            yield values
        for each in values.values():
            yield from images(each)


if __name__ == "__main__":
    sys.exit(main())
