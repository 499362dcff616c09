"""Puts the results of bundles into the README, between markers.

Usage: readme_results.py results BUNDLE CHART     the overview of the report, and one chart of its folder
       readme_results.py comparison BUNDLE        the ratios of delivered messages of two services
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGE = Path("docs/images/results.png")


def origin(bundle: Path) -> str:
    """What was run where."""
    run = json.loads((bundle / "run.json").read_text())
    machine = run["machines"][0]
    where = f"{machine['cpus']} CPUs of {machine['cpu_model']} (virtual), Linux {machine['kernel']}"
    commit = run["commit"][:12]
    return f"`{run['command']}` at commit\n`{commit}`; {where}; service on one CPU, generator on the other.\n\n"


def overview(bundle: Path, chart: str) -> str:
    """The table of the tiers that say most, and the chart."""
    report = (bundle / "report/report.md").read_text()
    lines = report.split("## At a glance", 1)[1].split("\n## ", 1)[0].splitlines()
    rows = "\n".join(line.rstrip() for line in lines if line.startswith("|"))
    (ROOT / IMAGE).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bundle / "report" / chart, ROOT / IMAGE)
    head = "The tier of each ladder that says most, medians over repeats with their range. "
    picture = f"![Messages per second, written, delivered and dropped, at each tier]({IMAGE})"
    return f"{head}{origin(bundle)}{rows}\n\n{picture}\n"


def comparison(bundle: Path) -> str:
    """Delivered messages per second of both services, with the interval of each ratio."""
    rows = [row for row in table(bundle, "comparisons.csv") if row["figure"] == "delivered per second"]
    trials = table(bundle, "trials.csv")
    versions = json.loads((bundle / "run.json").read_text())["versions"]
    # A flood that the generator bound says how much the service carried at least.
    bound = {(row["service"], row["variant"]) for row in trials if row["bound_by"] == "generator"}
    services = (rows[0]["service"], rows[0]["other"])
    titles = " | ".join(f"{service} {versions.get(service, '')}".strip() for service in services)
    lines = [
        f"| delivery, messages per write | {titles} | ratio | 95 % interval | dropped |",
        "| --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in rows:
        delivery, _, per_write = row["variant"].partition("-x")
        at_least = ["&ge; " if (service, row["variant"]) in bound else "" for service in services]
        ours, theirs = (float(row[name]) / 1000 for name in ("service_median", "other_median"))
        cells = [
            f"{delivery}, {per_write}",
            f"{at_least[0]}{ours:,.0f} k/s",
            f"{at_least[1]}{theirs:,.0f} k/s",
            f"{at_least[0]}{float(row['ratio']):.1f}",
            f"{float(row['ratio_low']):.1f} to {float(row['ratio_high']):.1f}",
            ", ".join(f"{100 * dropped(trials, service, row['variant']):.0f} %" for service in services),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    head = f"Messages delivered to Python, taking turns, {rows[0]['service_processes']} fresh processes each. "
    return head + origin(bundle) + "\n".join(lines) + "\n"


def dropped(trials: list[dict[str, str]], service: str, variant: str) -> float:
    """The share of what was sent that a service dropped, over all its trials."""
    own = [row for row in trials if (row["service"], row["variant"]) == (service, variant)]
    return sum(int(row["messages_dropped"]) for row in own) / sum(int(row["messages_sent"]) for row in own)


def table(bundle: Path, name: str) -> list[dict[str, str]]:
    """The rows of one of the report's tables."""
    with (bundle / "report" / name).open() as file:
        return list(csv.DictReader(file))


def splice(part: str, text: str) -> None:
    """Put a part between its markers."""
    begin, end = f"<!-- BEGIN: {part} -->\n", f"<!-- END: {part} -->"
    readme = (ROOT / "README.md").read_text()
    head, rest = readme.split(begin, 1)
    tail = rest.split(end, 1)[1]
    (ROOT / "README.md").write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def main() -> int:
    match sys.argv[1:]:
        case ["results", bundle, chart]:
            splice("results", overview(Path(bundle), chart))
        case ["comparison", bundle]:
            splice("comparison", comparison(Path(bundle)))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
