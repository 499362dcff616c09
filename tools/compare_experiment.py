"""How often `ladder compare` is right: a build of the engine that is slowed in one function, beside itself and beside
the build that isn't, many times each.

The slowed build is a commit of its own, made from HEAD and in no branch: `frame::unmask`, which every received message
passes, does some additions more. How much slower that is depends on the machine: the table has the ratio. Both commits
are checked out and built in target/compare. The comparisons take turns; those that have ended are kept, so an
interrupted experiment goes on.

Usage: .venv/bin/python tools/compare_experiment.py [--times N] [--steps N] [--output FOLDER] [--write]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import result_archive
from readme_highlights import replaced
from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parent.parent
LADDER = ROOT / "target/release/ladder"
SLOWED = "services/wse-server/engine/src/frame.rs"
# The last lines of the function that is slowed, and what comes in their place.
END = """    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}
"""
SLOWER_END = END.removesuffix("}\n") + "    (0..STEPS_u32).for_each(|step| drop(std::hint::black_box(step)));\n}\n"
# A fixed author and time, so that the same slowed source is the same commit.
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "experiment"), ("EMAIL", "experiment@localhost"), ("DATE", "2026-01-01T00:00:00Z"))
}
FIGURE = "cpu-per-million"
LEVEL = 0.95
VERDICTS = {"differs": "differs", "same": "same within 5 %", "not-shown": "no difference shown"}
BESIDE = {"itself": "itself", "unslowed": "the engine as it is"}
# The archive's name, and that of the block in docs/METHODOLOGY.md.
PART = "compare-experiment"
METHODOLOGY = ROOT / "docs/METHODOLOGY.md"

Compared = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 all comparisons have ended, 1 one could not be made, 2 bad usage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--times", type=int, default=20, help="comparisons of each kind (default: 20)")
    parser.add_argument("--steps", type=int, default=60, help="additions for each message (default: 60)")
    parser.add_argument("--output", type=Path, default=ROOT / "target/compare-experiment", help="folder of the results")
    parser.add_argument("--write", action="store_true", help="archive the results, and write docs/METHODOLOGY.md")
    options = parser.parse_args(arguments)
    if min(options.times, options.steps) < 1:
        parser.error("--times and --steps must be at least 1")
    plain = git("rev-parse", "HEAD")
    slowed = slowed_commit(plain, options.steps)
    # One for each slowed commit, so that an archive and its table are of one experiment.
    folder = options.output / slowed[:12]
    for number in range(1, options.times + 1):
        for kind, sides in {"itself": (slowed, slowed), "unslowed": (slowed, plain)}.items():
            if not compared(folder, f"{kind}-{slowed[:12]}-{number:03}", sides, options.steps):
                return 1
    print(block(folder))
    if options.write:
        write(folder)
    return 0


def slowed_commit(parent: str, steps: int) -> str:
    """A commit with this parent whose engine is slower."""
    source = subprocess.run(
        ["git", "show", f"{parent}:{SLOWED}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        blob = git("hash-object", "-w", "--stdin", given=slower(source, steps))
        git("read-tree", parent, **index)
        git("update-index", "--cacheinfo", f"100644,{blob},{SLOWED}", **index)
        tree = git("write-tree", **index)
    return git("commit-tree", tree, "-p", parent, "-m", f"engine: slowed by {steps} steps for each message", **IDENTITY)


def slower(source: str, steps: int) -> str:
    """The source with the slower function. Raises `ValueError` where the function isn't found."""
    if source.count(END) != 1:
        raise ValueError(f"{SLOWED}: the end of unmask() isn't as this experiment knows it; update END")
    return source.replace(END, SLOWER_END.replace("STEPS", str(steps)))


def compared(output: Path, name: str, sides: tuple[str, str], steps: int) -> bool:
    """Measures the comparison with this name unless it was before; returns whether it could be made."""
    file = output / f"{name}.json"
    if not file.exists():
        output.mkdir(parents=True, exist_ok=True)
        command = [str(LADDER), "compare", "--plan", "compare", "--figure", FIGURE, "--json", "--no-report"]
        command += ["--no-conformance", "--results", str(output / "bundles"), "--run-id", f"{name}-{os.getpid()}"]
        command += [f"wse-server@{side}" for side in sides]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, 1):
            print(f"{name}: ladder compare ended with {done.returncode}", file=sys.stderr)
            return False
        file.write_text(json.dumps(with_machine(json.loads(done.stdout)) | {"steps": steps}, indent=1) + "\n")
    return True


def with_machine(printed: Compared) -> Compared:
    """What `ladder compare --json` printed, with the machine of its bundle in the place of the bundle's folder."""
    run = json.loads((Path(printed["bundle"]) / "run.json").read_text())
    return {key: value for key, value in printed.items() if key != "bundle"} | {"machine": run["machines"][0]}


def write(output: Path) -> None:
    """Archives the comparisons of a folder, and writes their table into docs/METHODOLOGY.md."""
    result_archive.pack(PART, output)
    METHODOLOGY.write_text(replaced(METHODOLOGY.read_text(), PART, block(output)))


def block(output: Path) -> str:
    """What docs/METHODOLOGY.md says of the comparisons in a folder."""
    found: dict[str, list[Compared]] = {}
    for file in sorted(output.glob("*.json")):
        found.setdefault(file.name.partition("-")[0], []).append(json.loads(file.read_text()))
    first = found["unslowed"][0]
    slowed, plain = (first["comparison"][side]["commit"][:12] for side in "ab")
    machine = first["machine"]
    return (
        f"`{FIGURE}` at commit `{plain}`, and slowed by {first['steps']} additions for each message as `{slowed}`;"
        f" {machine['cpus']} CPUs of {machine['cpu_model']} (virtual), Linux {machine['kernel']};"
        " service on one CPU, generator on the other; `plans/compare.yaml`, 64 messages per write.\n\n"
        f"{table(found)}\n"
    )


def table(found: dict[str, list[Compared]]) -> str:
    """Counts of verdicts with exact intervals at 95 %, the pairs that they took, and the ratio over all pairs."""
    lines = [
        "| slowed build beside | A/B, all pairs | pairs, mean | verdict | times | share (95 %) |",
        "| --- | ---: | ---: | --- | ---: | --- |",
    ]
    for kind, results in found.items():
        looks = [result["comparison"]["progress"]["looks"][-1] for result in results]
        figures = [figure for look in looks for figure in look["figures"] if figure["figure"] == FIGURE]
        pairs = sum(figure["pairs"] for figure in figures)
        ratio = math.exp(sum(figure["pairs"] * math.log(figure["ratio"]) for figure in figures) / pairs)
        for verdict, times in sorted(Counter(figure["verdict"] for figure in figures).items()):
            ends = binomtest(times, len(figures)).proportion_ci(LEVEL, method="exact")
            cells = [
                BESIDE[kind],
                f"{ratio:.3f}",
                f"{pairs / len(figures):.1f}",
                VERDICTS[verdict],
                f"{times} of {len(figures)}",
                f"{percent(times / len(figures))} ({percent(ends.low)} to {percent(ends.high)})",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def git(*arguments: str, given: str | None = None, **environment: str) -> str:
    """The first line that git prints."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
