"""`ladder compare BUNDLE_A [BUNDLE_B]`: compares two finished bundles, or two services of one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..load import BundleError, read_bundle
from .printing import as_json, text
from .rows import compare_bundles
from .sides import ComparisonError

REFUSED = 2


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 when no figure of B is shown to be worse than A's, 1 when one is, 2 when it refuses."""
    parser = argparse.ArgumentParser(
        prog="ladder compare", description="Compares two finished bundles, or two services of one bundle."
    )
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE", help="A and B, or one bundle with both")
    parser.add_argument(
        "--service", action="append", default=[], metavar="NAME", help="service of A, then service of B"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if len(options.bundles) > 2:
        parser.error(f"two bundles are compared at a time, {len(options.bundles)} were given")
    try:
        # The same folder twice is one bundle: its processes are pairs.
        folders = list(dict.fromkeys(folder.resolve() for folder in options.bundles))
        found = compare_bundles([read_bundle(folder) for folder in folders], options.service)
    except (BundleError, ComparisonError) as error:
        for line in str(error).splitlines():
            print(f"can't compare: {line}", file=sys.stderr)
        return REFUSED
    if options.json:
        print(json.dumps(as_json(found), indent=2, ensure_ascii=False))
    else:
        print(text(found), end="")
    return int(any(row.is_worse for one in found for row in one.rows))
