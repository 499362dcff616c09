"""Load generators of other projects and ours (services/league/generators), measured in turns against the same echo.

Each has one CPU, and the echo another. The figures are messages per CPU second, and what each reports of a known delay
and a known freeze. They go to results/of-COMMIT/generators; the same command goes on where it stopped. When all are
there, they are archived in docs/results, and docs/LEAGUE.md is written.

Usage: generators.py [NAME]... [--minutes N] [--quick] [--of COMMIT]
       generators.py build [NAME]...      installs tools; one that can't be had is left out with the reason
       generators.py build --ci           installs those that CI runs
       generators.py page                 writes docs/LEAGUE.md from the archive
LADDER names the ladder program; without it, target/release/ladder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import generator_page
import generator_tools
import generator_trials
import league_build
import league_servers
import measure_results
import result_archive
from generator_tools import Generator
from generator_trials import FULL, QUICK, SCENARIOS, Settings
from league_page import PAGE
from league_servers import ROOT, LeagueError
from readme_highlights import replaced
from this_machine import cpu_model

PART = "generators"
# Cheap to install, and the ones whose counts show most: one that reads no answer, and one that does.
CI = ("artillery", "locust")
# The server whose environment the echo runs in.
ECHO = "picows"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 all is measured, 1 a trial has no figures, 2 bad usage, 3 the time was over."""
    match list(arguments):
        case ["build", "--ci"]:
            return build(list(CI))
        case ["build", *names]:
            return build(names)
        case ["page"]:
            write_page()
            return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", nargs="*", help="only these generators")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on from there")
    parser.add_argument(
        "--quick", action="store_true", help="tiny windows and one process each: no figures, and no page"
    )
    parser.add_argument("--of", metavar="COMMIT", help="only write the page, from what was measured at this commit")
    options = parser.parse_args(arguments)
    until = measure_results.end_of(options.minutes, parser)
    asked = generator_tools.choose(options.name)
    commit = git_commit(options.of, is_figure=not options.quick)
    folder = folder_of(commit, is_quick=options.quick)
    if not options.of and not measure(asked, QUICK if options.quick else FULL, commit, folder, until):
        print(f"generators: the time is over; what was measured is in {folder}", file=sys.stderr)
        return 3
    evidence = json.loads((folder / "generators.json").read_text())
    if options.quick or options.name:
        print(generator_page.block(evidence, list(generator_tools.load().values())))
    else:
        result_archive.pack(PART, folder)
        write_page()
    return 1 if any("error" in one for one in evidence["trials"]) else 0


def build(names: list[str]) -> int:
    """Installs tools and the echo; leaving out one that was named is a failure."""
    left_out = league_build.build([league_servers.load()[ECHO], *generator_tools.choose(names)])
    return 1 if left_out and names else 0


def git_commit(of: str | None, *, is_figure: bool) -> str:
    """The commit that is measured. Raises `NotEndedError` where figures would be of changed files."""
    if of:
        return measure_results.git("rev-parse", f"{of}^{{commit}}")
    return measure_results.commit() if is_figure else measure_results.git("rev-parse", "HEAD")


def folder_of(commit: str, *, is_quick: bool) -> Path:
    """Where the evidence is."""
    if is_quick:
        return ROOT / f"results/generators-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    return measure_results.folder_of(commit) / PART


def measure(asked: Sequence[Generator], settings: Settings, commit: str, folder: Path, until: float | None) -> bool:
    """Runs what is missing, all tools in turns. Returns whether all of it is there."""
    file = folder / "generators.json"
    evidence = json.loads(file.read_text()) if file.is_file() else head(settings, commit)
    gone = league_build.left_out()
    ready = [one for one in asked if one.name not in gone]
    evidence["versions"] |= {one.name: generator_tools.version(one) for one in ready}
    folder.mkdir(parents=True, exist_ok=True)
    done = {(one["number"], one["scenario"], one["generator"]) for one in evidence["trials"]}
    for number in range(settings.processes):
        for scenario in SCENARIOS:
            for generator in ready:
                if (number, scenario, generator.name) in done:
                    continue
                if until is not None and time.monotonic() > until:
                    return False
                print(
                    f"generators: {generator.name}, {scenario}, {number + 1} of {settings.processes}", file=sys.stderr
                )
                found = generator_trials.run(generator, scenario, settings)
                which = {"generator": generator.name, "scenario": scenario, "number": number}
                evidence["trials"].append(which | found)
                file.write_text(json.dumps(evidence, indent=2) + "\n")
    return True


def head(settings: Settings, commit: str) -> dict[str, Any]:
    """What all trials of a run share."""
    return {
        "schema": 1,
        "commit": commit,
        "command": "./justw generators",
        "machine": {
            "cpus": os.cpu_count(),
            "model": cpu_model() or os.uname().machine,
            "kernel": os.uname().release,
        },
        "settings": asdict(settings),
        "versions": {},
        "trials": [],
    }


def page_block(folder: Path) -> str:
    """The block from the archive, unpacked into a folder; without an archive it says that nothing is published."""
    evidence = None
    if result_archive.file_of(PART).is_file():
        evidence = json.loads((result_archive.unpack(PART, folder) / "generators.json").read_text())
    return generator_page.block(evidence, list(generator_tools.load().values()))


def write_page() -> None:
    """Writes the block into docs/LEAGUE.md."""
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(replaced(PAGE.read_text(), PART, page_block(Path(folder))))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (LeagueError, measure_results.NotEndedError) as error:
        print(f"generators: {error}", file=sys.stderr)
        sys.exit(2)
