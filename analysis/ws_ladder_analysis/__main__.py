"""`python -m ws_ladder_analysis BUNDLE`: writes the report of a bundle and says where it is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .load import BundleError
from .report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 written, 1 the bundle can't be read."""
    parser = argparse.ArgumentParser(prog="python -m ws_ladder_analysis", description="Writes the report of a bundle.")
    parser.add_argument("bundle", type=Path, help="folder of a run, such as results/<run-id>")
    parser.add_argument("--output", type=Path, help="folder for the report; default: report/ inside the bundle")
    options = parser.parse_args(arguments)
    try:
        page, report = write_report(options.bundle, options.output)
    except BundleError as error:
        print(f"failed to report: {error}", file=sys.stderr)
        return 1
    for one in report.checked.disagreements:
        print(f"the files disagree: {one.where}: {one.words}", file=sys.stderr)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
