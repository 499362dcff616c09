"""Measures the plans of the league at one commit, and archives what docs/LEAGUE.md is made from.

A plan that was stopped goes on where it stopped; one that has ended is not measured again. Servers that are not built
are left out, and the page says why.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import league_build
import league_plans
import measure_results
import result_archive
from bench import is_finished
from league_servers import ROOT, LeagueError, Server
from measure_results import NotEndedError

PART = "league"
# Beside the bundles: why servers are not in them.
LEFT_OUT = "left-out.json"


@dataclass(frozen=True)
class Climb:
    """A run of ladder with a plan, and the bundle that it leaves."""

    file: Path
    command: str
    bundle: str


def folder_of(commit: str, *, large: bool = False) -> Path:
    """Where the evidence is: a bundle for each plan, and one more for the searches of a large one."""
    return measure_results.folder_of(commit) / (f"{PART}-large" if large else PART)


def climbs(servers: dict[str, Server], *, large: bool) -> Iterator[Climb]:
    """What is run, in this order."""
    for file in league_plans.plans(servers.values()):
        if league_plans.is_large(file) if large else league_plans.is_measured(file):
            yield Climb(file, "run", file.stem)
            if large:
                yield Climb(file, "search", f"{file.stem}-capacity")


def measure(servers: dict[str, Server], ladder: Path, until: float | None, *, large: bool = False) -> Path:
    """Measures what is missing at this commit and returns the folder of the bundles. `large`: with the plans for a
    bigger machine. Raises `NotEndedError` where files differ from the commit, or the time is over."""
    folder = folder_of(measure_results.commit(), large=large)
    folder.mkdir(parents=True, exist_ok=True)
    for climb in climbs(servers, large=large):
        name = climb.bundle
        if is_finished(folder / name):
            continue
        built = built_of(climb.file)
        if not built:
            print(f"league: {name} is left out: none of its servers is built", file=sys.stderr)
            continue
        print(f"league: {name}", file=sys.stderr)
        # With any verdict: a trial that fails is a row of the page, and not the end of the run.
        measure_results.run_to_end(name, command_line(climb, built, folder, ladder), until)
        if not is_finished(folder / name):
            raise NotEndedError(f"{name} has no bundle that has ended; the same command goes on from there")
    (folder / LEFT_OUT).write_text(json.dumps(league_build.left_out(), indent=2, sort_keys=True) + "\n")
    return folder


def built_of(file: Path) -> list[str]:
    """The servers of a plan that are built."""
    gone = league_build.left_out()
    return [name for name in league_plans.services_of(file) if name not in gone]


def command_line(climb: Climb, built: list[str], folder: Path, ladder: Path) -> list[str]:
    """What measures a plan: from its beginning, or from where it stopped."""
    name, where = climb.bundle, str(folder.relative_to(ROOT))
    if resumed := measure_results.resume(folder / name):
        return [str(ladder), *resumed]
    # It was stopped before it had anything to go on from.
    shutil.rmtree(folder / name, ignore_errors=True)
    only = [] if built == league_plans.services_of(climb.file) else [f"--service={one}" for one in built]
    return [str(ladder), climb.command, f"plans/{climb.file.name}", "--results", where, "--run-id", name, *only]


def archive(folder: Path) -> None:
    """Archives the evidence. Raises `LeagueError` where a plan has no bundle that has ended."""
    if not (folder / LEFT_OUT).is_file():
        raise LeagueError(f"{folder.relative_to(ROOT)} has no league that was measured to its end")
    result_archive.pack(PART, folder)
