"""Puts the results of a bundle into the README, between its two markers: the overview of the report, and one chart.

Usage: readme_results.py BUNDLE CHART, where CHART is a file name in the bundle's report folder.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- BEGIN: results -->\n", "<!-- END: results -->"
IMAGE = Path("docs/images/results.png")


def overview(report: str) -> str:
    """The table of the tiers that say most."""
    lines = report.split("## At a glance", 1)[1].split("\n## ", 1)[0].splitlines()
    return "\n".join(line.rstrip() for line in lines if line.startswith("|"))


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    bundle = Path(sys.argv[1])
    run = json.loads((bundle / "run.json").read_text())
    table = overview((bundle / "report/report.md").read_text())
    (ROOT / IMAGE).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bundle / "report" / sys.argv[2], ROOT / IMAGE)
    machine = run["machines"][0]
    where = f"{machine['cpus']} CPUs of {machine['cpu_model']} (virtual), Linux {machine['kernel']}"
    text = (
        f"The tier of each ladder that says most, medians over repeats with their range. `{run['command']}` at commit\n"
        f"`{run['commit'][:12]}`; {where}; service on one CPU, generator on the other.\n\n"
        f"{table}\n\n![Messages per second, written, delivered and dropped, at each tier]({IMAGE})\n"
    )
    readme = (ROOT / "README.md").read_text()
    head, rest = readme.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    (ROOT / "README.md").write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
