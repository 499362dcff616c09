"""Measures everything that README.md and docs/RESULTS.md publish, at one commit, and writes it there.

Every part leaves its evidence in results/of-COMMIT/. A part that was stopped goes on where it stopped, also after a
restart of the machine: the same command resumes it. Parts that have ended are not measured again.

Usage: .venv/bin/python tools/measure_results.py [PART]... [--minutes N] [--only-measure] [--of COMMIT]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import readme_highlights
import result_archive
import result_blocks
from bench import is_finished
from readme_highlights import replaced
from this_machine import cpu_model

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/RESULTS.md"
IMAGES = ROOT / "docs/images"
LADDER = "target/release/ladder"
# The search whose capacities `latency` is a share of.
SEARCH = "stt-capacity"
SHARE = 0.7
# Exit codes of `ladder run` and `ladder search` after which the run has ended, with any verdict.
ENDED = (0, 1, 2)
# Seconds that a program gets to keep what it has measured, after it was asked to stop.
STOP_SECONDS = 60


@dataclass(frozen=True)
class Part:
    """A block of docs/RESULTS.md and what it is measured with."""

    name: str
    # How long it takes on two CPUs, for `--help`.
    minutes: int
    # The subcommand of ladder; empty for `just bench`.
    command: str = ""
    plan: str = ""

    @property
    def evidence(self) -> str:
        """The folder of its evidence."""
        return self.plan or "bench"


PARTS = (
    Part("results", 6, "run", "quick"),
    Part("comparison", 14, "run", "reference"),
    Part("bench", 75),
    Part("sessions", 60, "run", "stt"),
    Part("capacity", 150, "search", "stt-capacity"),
    Part("latency", 35, "run", "stt-at-70"),
    Part("two-cpus", 35, "run", "two-cpus"),
    Part("capacity-half", 150, "search", "stt-capacity-half"),
)


class NotEndedError(Exception):
    """A part has not ended: its time was over, or it can't be measured here. The text says what to do."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 the parts have ended, 1 one can't be measured, 2 bad usage, 3 the time was over."""
    listed = ", ".join(f"{part.name} ({part.minutes} min)" for part in PARTS)
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], epilog=f"Parts: {listed}.")
    parser.add_argument("part", nargs="*", help="only these parts")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on from there")
    parser.add_argument("--of", metavar="COMMIT", help="only write, from what was measured at this commit")
    parser.add_argument("--only-measure", action="store_true", help="leave README.md and docs/ as they are")
    options = parser.parse_args(arguments)
    names = [part.name for part in PARTS]
    if unknown := sorted(set(options.part) - set(names)):
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(names)}")
    until = end_of(options.minutes, parser)
    asked = [part for part in PARTS if not options.part or part.name in options.part]
    try:
        folder = folder_of(git("rev-parse", f"{options.of}^{{commit}}") if options.of else commit())
        for part in asked:
            if options.of:
                needs_evidence(part, folder)
            else:
                measure(part, folder, until)
    except NotEndedError as error:
        print(f"results: {error}", file=sys.stderr)
        return 3 if until is not None and time.monotonic() >= until else 1
    if not options.only_measure:
        for part in asked:
            write(part, folder)
    return 0


def end_of(minutes: float | None, parser: argparse.ArgumentParser) -> float | None:
    """When `--minutes` are over, on the monotonic clock; `None` without them. A usage error unless they are above 0."""
    if minutes is None:
        return None
    if minutes <= 0:
        parser.error(f"--minutes is {minutes:g}, but must be above 0")
    return time.monotonic() + 60 * minutes


def commit() -> str:
    """The commit of the checkout. Raises `NotEndedError` where files differ from it: figures are those of a commit."""
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed:
        raise NotEndedError(f"files differ from the last commit; commit or undo them first:\n{changed}")
    return git("rev-parse", "HEAD")


def folder_of(name: str) -> Path:
    """Where the evidence of a commit is."""
    return ROOT / f"results/of-{name[:12]}"


def needs_evidence(part: Part, folder: Path) -> None:
    """Raises `NotEndedError` where a part was not measured to its end."""
    if not (is_finished(folder / part.plan) if part.plan else (folder / "bench").is_dir()):
        raise NotEndedError(
            f"{part.name} was not measured to its end: {folder.relative_to(ROOT)} has no evidence of it"
        )


def measure(part: Part, folder: Path, until: float | None) -> None:
    """Measures a part, or what is missing of it. Raises `NotEndedError` when it hasn't ended by then."""
    if part.plan and is_finished(folder / part.plan):
        return
    print(f"results: {part.name}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    run_to_end(part.name, command_line(part, folder), until)


def run_to_end(name: str, command: Sequence[str], until: float | None) -> None:
    """Runs a program of ladder's to any verdict. Raises `NotEndedError` when it hasn't ended by then, or otherwise."""
    code = run(command, until)
    if code is None:
        raise NotEndedError(f"{name} was stopped, because the time is over; the same command goes on from there")
    if code not in ENDED:
        raise NotEndedError(f"{name} ended with exit code {code}; the same command goes on from there")


def command_line(part: Part, folder: Path) -> list[str]:
    """What measures a part: from its beginning, or from where it stopped."""
    where = str(folder.relative_to(ROOT))
    if not part.plan:
        return [sys.executable, "tools/bench.py", "--folder", f"{where}/bench"]
    if resumed := resume(folder / part.plan):
        return [LADDER, *resumed]
    name = part.plan
    if derive := DERIVED.get(name):
        bring_search(folder)
        plan = folder / f"{name}.json"
        plan.write_text(json.dumps(derive(folder / SEARCH) | {"name": name}, indent=2) + "\n")
        name = f"{where}/{plan.name}"
    possible = subprocess.run(
        [sys.executable, "tools/service_tasks.py", "needed", name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [LADDER, part.command, name, "--results", where, "--run-id", part.plan, *possible.stdout.split()]


def resume(bundle: Path) -> list[str]:
    """What ladder goes on with in a bundle, relative to the checkout; nothing where it has not begun."""
    if not (bundle / "run.json").is_file():
        return []
    return ["run", "--resume", bundle.name, "--results", str(bundle.parent.relative_to(ROOT))]


def bring_search(folder: Path) -> None:
    """Unpacks the archive of the search, where another checkout measured it on such a CPU, at this folder's commit. No
    other may stay here: it would count as measured."""
    bundle = folder / SEARCH
    if bundle.exists() or not result_archive.file_of("capacity").is_file():
        return
    result_archive.unpack("capacity", bundle)
    run = json.loads((bundle / "run.json").read_text())
    if folder_of(run["commit"]) != folder or run["machines"][0]["cpu_model"] != cpu_model():
        shutil.rmtree(bundle)


def searched(bundle: Path) -> dict[str, Any]:
    """The run of a search. Raises `NotEndedError` where it has not ended, or was measured on another CPU: its loads say
    nothing of this one."""
    if not is_finished(bundle):
        raise NotEndedError("this part follows from the capacities; measure the part `capacity` first")
    run: dict[str, Any] = json.loads((bundle / "run.json").read_text())
    [there, here] = [run["machines"][0]["cpu_model"], cpu_model()]
    if there != here:
        raise NotEndedError(
            f"this part follows from capacities on {there}, and this is {here}; measure the part `capacity` here first"
        )
    return run


def at_share(bundle: Path) -> dict[str, Any]:
    """A plan that climbs each service of a search at a share of the capacity that was found."""
    run = searched(bundle)
    plan: dict[str, Any] = run["plan"]
    [ladder] = plan["ladders"]
    loads = {search["service"]: found_load(search["found"]) for search in run["searches"]}
    ladders = [
        ladder | {"variant": f"at-70-{service}", "services": [service], "tiers": [round(SHARE * load)], "search": None}
        for service, load in loads.items()
        if load
    ]
    why = f"each gateway at {SHARE:.0%} of the capacity that a search found on the same share of a CPU"
    return plan | {"why": why, "repeats": 5, "ladders": ladders}


def on_half(bundle: Path) -> dict[str, Any]:
    """A plan that searches the same services on half of the share of a CPU, up to the same load: a service that carried
    all that the generator offers has its capacity there."""
    plan: dict[str, Any] = searched(bundle)["plan"]
    cpus = plan["cpu"]["service"]["cpus"] / 2
    cpu = plan["cpu"] | {"service": plan["cpu"]["service"] | {"cpus": cpus}}
    why = "the same search on half of the share of a CPU, for what a whole one would carry"
    return plan | {"why": why, "cpu": cpu}


# The plans that follow from the capacities.
DERIVED = {"stt-at-70": at_share, "stt-capacity-half": on_half}


def found_load(found: dict[str, Any]) -> float | None:
    """The capacity that a search found, else the load that it confirmed."""
    estimate = (found["capacity"] or {}).get("estimate")
    load: float | None = estimate["load"] if estimate else found["confirmed"]
    return load


def run(command: Sequence[str], until: float | None) -> int | None:
    """The exit code of a program, which is asked to stop at `until`; `None` if it was."""
    # A group of its own, because what `just bench` runs must stop, too.
    with subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr, process_group=0) as process:
        try:
            return process.wait(None if until is None else max(0.0, until - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as stopped:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(STOP_SECONDS)
            if isinstance(stopped, KeyboardInterrupt):
                raise
            return None


def write(part: Part, folder: Path) -> None:
    """Writes a part's block into docs/RESULTS.md with its pictures, its archive, and the README's rows."""
    made = result_blocks.block(part.name, folder.joinpath, command_of(part.name))
    for file, chart in made.pictures.items():
        (IMAGES / file).write_bytes(chart.png)
    RESULTS.write_text(replaced(RESULTS.read_text(), part.name, made.text))
    result_archive.pack(part.name, folder / part.evidence)
    readme_highlights.main()


def command_of(name: str) -> str:
    """The command that makes a block again."""
    return f"./justw results {name}"


def git(*arguments: str) -> str:
    """What git prints about this checkout, without the last line's end. Raises `NotEndedError` with git's reason."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotEndedError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def heed_sigterm() -> None:
    """Makes SIGTERM end this program as Ctrl-C does: what it runs would go on measuring, and is stopped, too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


if __name__ == "__main__":
    heed_sigterm()
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("results: stopped; the same command goes on from there", file=sys.stderr)
        sys.exit(130)
