"""`ladder export BUNDLE --format bencher|fortio`: a bundle in the formats of other tools.

JUnit XML is written by `ladder` itself, from the verdicts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench_format.meaning import is_scheduled

from . import bencher, fortio, pages
from .bencher import Metric
from .compare import FIGURES
from .conditions import broken_contracts
from .ladders import ladders
from .load import Bundle, BundleError, read_bundle

BAD_INPUT = 2


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 when everything is written, 2 when the bundle can't be used."""
    parser = argparse.ArgumentParser(prog="ladder export", description="Writes a bundle in another tool's format.")
    parser.add_argument("bundle", type=Path, help="folder of a run, such as results/<run-id>")
    parser.add_argument("--format", choices=("bencher", "fortio"), required=True, help="what is written")
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="file for bencher (default: printed), folder for fortio"
    )
    options = parser.parse_args(arguments)
    try:
        bundle = read_bundle(options.bundle)
    except BundleError as error:
        print(f"failed to export: {error}", file=sys.stderr)
        return BAD_INPUT
    broken = broken_contracts(bundle)
    if broken:
        print(f"failed to export: {', '.join(broken)} broke the contract after the last trial", file=sys.stderr)
        return BAD_INPUT
    if options.format == "bencher":
        return _bencher(bundle, options.output)
    return _fortio(bundle, options.output or options.bundle / "fortio")


def metrics(bundle: Bundle) -> Iterator[Metric]:
    """Every figure of every tier with valid trials; a rate that the generator bound is only a lower bound, and none."""
    for ladder in ladders(bundle):
        for tier in ladder.tiers:
            scheduled = any(is_scheduled(result.load) for result in tier.results)
            for one in FIGURES:
                found = tier.spread(one.getter)
                if found is None or (one.is_rate and (scheduled or tier.at_least)):
                    continue
                name = f"{ladder.service}/{ladder.workload}/{ladder.variant}/{tier.connections}"
                yield Metric(name, one.name, found.mean, (found.low, found.high) if found.samples > 1 else None)


def _bencher(bundle: Bundle, output: Path | None) -> int:
    text = json.dumps(bencher.results(metrics(bundle)), indent=2) + "\n"
    if output is None:
        print(text, end="")
    else:
        pages.write_atomically(output, text.encode())
        print(output)
    return 0


def _fortio(bundle: Bundle, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for result in fortio.results(bundle):
        file = folder / f"{result['ID']}.json"
        pages.write_atomically(file, (json.dumps(result, indent=2) + "\n").encode())
        print(file)
    return 0
