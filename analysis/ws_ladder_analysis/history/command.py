"""`ladder history FOLDER`: change points of all figures over the runs of a folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..load import BundleError
from . import acknowledged
from .acknowledged import AcknowledgementError
from .detectors import DetectorError
from .page import write_page
from .points import read_folder
from .printing import as_bencher, as_json, junit, text
from .trend import History, history

BAD_INPUT = 2
FORMATS = ("text", "json", "junit", "bencher")


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 without a new change for the worse, 1 with one, 2 when the input can't be used."""
    parser = argparse.ArgumentParser(
        prog="ladder history", description="Finds changes of figures over the runs of a folder, and writes a page."
    )
    parser.add_argument("folder", type=Path, help="folder that holds the bundles, such as results")
    parser.add_argument("--acknowledged", type=Path, metavar="FILE", help="YAML file of changes that are accepted")
    parser.add_argument("--format", choices=FORMATS, default="text", help="what is printed")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder for history.html; default: FOLDER/history")
    parser.add_argument("--any-host", action="store_true", help="take all machines of one kind for one machine")
    options = parser.parse_args(arguments)
    try:
        entries = acknowledged.read(options.acknowledged) if options.acknowledged else ()
        found = history(read_folder(options.folder, host=not options.any_host), entries)
    except (BundleError, AcknowledgementError, DetectorError) as error:
        print(f"failed to read the history: {error}", file=sys.stderr)
        return BAD_INPUT
    page = write_page(found, options.folder.resolve().name, options.output or options.folder / "history")
    print(_printed(found, options.format), end="")
    # The other formats are for programs.
    print(page, file=sys.stdout if options.format == "text" else sys.stderr)
    return int(found.is_worse)


def _printed(found: History, kind: str) -> str:
    if kind == "json":
        return json.dumps(as_json(found), indent=2, ensure_ascii=False) + "\n"
    if kind == "bencher":
        return json.dumps(as_bencher(found), indent=2) + "\n"
    return junit(found) if kind == "junit" else text(found)
