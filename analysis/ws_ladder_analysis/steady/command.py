"""`python -m ws_ladder_analysis steady BUNDLE`: what the pilots of a bundle show; `ladder pilot` calls it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench_format.wire import FormatError

from ..load import BundleError, read_bundle
from .pilots import PilotedLadder, State, ladders
from .printing import as_json, text

LONGER_NEEDED, NOT_MEASURED = 1, 2


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 when everything is steady and the plan's warm-up is long enough, 1 when a longer one is
    needed or something is never steady, 2 when something could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m ws_ladder_analysis steady", description="Prints when the steady state of each pilot begins."
    )
    parser.add_argument("bundle", type=Path, help="folder of a run of ladder pilot, such as results/<run-id>")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        bundle = read_bundle(options.bundle)
        found = ladders(bundle)
    except (BundleError, FormatError) as error:
        print(f"failed to read the pilots: {error}", file=sys.stderr)
        return NOT_MEASURED
    if not found:
        print(f"{bundle.run.id} has no pilots; ladder pilot makes them", file=sys.stderr)
        return NOT_MEASURED
    if options.json:
        print(json.dumps(as_json(bundle.run.id, found), indent=2, ensure_ascii=False))
    else:
        print(text(found), end="")
    return exit_code(found)


def exit_code(found: Sequence[PilotedLadder]) -> int:
    """The exit code for these ladders."""
    if any(pilot.state is State.NOT_MEASURED for ladder in found for pilot in ladder.pilots):
        return NOT_MEASURED
    return 0 if all(ladder.is_sufficient for ladder in found) else LONGER_NEEDED
