"""`python -m ws_ladder_analysis BUNDLE`: writes the report of a bundle and prints the path of its HTML page.

`python -m ws_ladder_analysis clients BUNDLE...`: prints the results of several clients side by side, one bundle each.

`compare`, `history` and `export` are the subcommands of `ladder` with these names; `steady` is what `ladder pilot`
prints, `reports` makes reports beside the operator of a cluster.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from .checks import check
from .clients import clients, markdown, published
from .load import BundleError, read_bundle
from .report import write_report

# The subcommands of `ladder` that this program does the work of, and the one for a cluster, with their modules.
_COMMANDS = {
    "compare": "comparison.command",
    "history": "history.command",
    "export": "export",
    "steady": "steady.command",
    "reports": "cluster_reports",
}
# Exit code of a program that failed: 1 is an answer of these commands.
_FAILED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when the report is written, 1 when a bundle can't be read; the subcommands of `ladder`
    have their own."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["clients"]:
        return _clients(given[1:])
    return _command(given[0], given[1:]) if given and given[0] in _COMMANDS else _report(given)


def _command(name: str, arguments: Sequence[str]) -> int:
    try:
        # Imported only when it is asked for: a report doesn't pay for what detectors load.
        return int(import_module(f".{_COMMANDS[name]}", __package__).main(arguments))
    except Exception:
        traceback.print_exc()
        return _FAILED


def _report(description: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m ws_ladder_analysis", description="Writes the report of a bundle.")
    parser.add_argument("bundle", type=Path, help="folder of a run, such as results/<run-id>")
    parser.add_argument("--output", type=Path, help="folder for the report; default: report/ inside the bundle")
    options = parser.parse_args(description)
    try:
        page, report = write_report(options.bundle, options.output)
    except BundleError as error:
        print(f"failed to report: {error}", file=sys.stderr)
        return 1
    for one in report.checked.disagreements:
        print(f"the files disagree: {one.where}: {one.description}", file=sys.stderr)
    print(page)
    return 0


def _clients(description: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ws_ladder_analysis clients", description="Clients side by side, as Markdown."
    )
    parser.add_argument("bundles", type=Path, nargs="+", help="folders of runs, one for each client")
    options = parser.parse_args(description)
    try:
        bundles = [read_bundle(folder) for folder in options.bundles]
    except BundleError as error:
        print(f"failed to compare: {error}", file=sys.stderr)
        return 1
    for bundle in bundles:
        for one in check(bundle).disagreements:
            print(f"the files of {bundle.run.id} disagree: {one.where}: {one.description}", file=sys.stderr)
    print(markdown([clients(bundles), published()]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
