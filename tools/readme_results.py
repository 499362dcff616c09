"""Writes the results of bundles into docs/RESULTS.md, between markers, and the rows that say most into the README.

Usage: readme_results.py results BUNDLE CHART     the overview of the report, and one chart of its folder
       readme_results.py comparison BUNDLE        the ratios of delivered messages of two services
       readme_results.py sessions BUNDLE          CPU per frame, memory and lines of code of each gateway
       readme_results.py two-cpus BUNDLE          CPU per frame of each gateway on one CPU and on two
       readme_results.py capacity BUNDLE…         the capacities that searches found, each with its CPU limit
       readme_results.py bench FOLDER…            ours beside the reference and the floor: a folder of target/bench,
                                                  then folders of parts that were repeated because a trial was invalid
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import readme_highlights
from bench_format.schemas import CapacityEstimate
from bench_rows import ROWS
from bench_summary import Row, markdown
from readme_highlights import replaced
from ws_ladder_analysis.whole_cpu import whole_cpu

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/RESULTS.md"
# As docs/RESULTS.md names them.
IMAGE = Path("images/results.png")
GATEWAYS = Path("images/gateways.png")
# The chart of the overview, in the report's folder.
CHART = "throughput-batch-wse-server-outcomes.png"


def origin(*bundles: Path, command: str = "", sides: str = "service on one CPU, generator on the other") -> str:
    """A sentence with machine, commit and command of bundles; the command defaults to the first bundle's. `sides` says
    which CPUs service and generator had."""
    runs = [json.loads((bundle / "run.json").read_text()) for bundle in bundles]
    machine = runs[0]["machines"][0]
    where = f"{machine['cpus']} CPUs of {machine['cpu_model']} (virtual), Linux {machine['kernel']}"
    commits = ", ".join(dict.fromkeys(f"`{commit(run)}`" for run in runs))
    command_line = command or runs[0]["command"]
    return f"`{command_line}` at commit\n{commits}; {where}; {sides}.\n\n"


def commit(run: dict[str, Any]) -> str:
    """The shortened commit of a run, marked when the checkout had changes."""
    name, changed, _ = run["commit"].partition("+")
    return f"{name[:12]}{changed}{'changes' if changed else ''}"


def overview(bundle: Path, chart: str = CHART, command: str = "") -> str:
    """The report's "At a glance" table, and a chart."""
    report = (bundle / "report/report.md").read_text()
    lines = report.split("## At a glance", 1)[1].split("\n## ", 1)[0].splitlines()
    rows = "\n".join(line.rstrip() for line in lines if line.startswith("|"))
    shutil.copyfile(bundle / "report" / chart, RESULTS.parent / IMAGE)
    head = "The most informative tier of each ladder, means over processes with the range over repeats. "
    picture = f"![Messages per second, written, delivered and dropped, at each tier]({IMAGE})"
    return f"{head}{origin(bundle, command=command)}{rows}\n\n{picture}\n"


def comparison(bundle: Path, command: str = "") -> str:
    """Delivered messages per second of both services, and their ratio with its interval."""
    rows = [row for row in table(bundle, "comparisons.csv") if row["figure"] == "delivered per second"]
    trials = table(bundle, "trials.csv")
    versions = json.loads((bundle / "run.json").read_text())["versions"]
    # The rate of a flood that the generator limited is a lower bound.
    bound = {(row["service"], row["variant"]) for row in trials if row["bound_by"] == "generator"}
    services = (rows[0]["service"], rows[0]["other"])
    level = 100 * float(rows[0]["level"])
    titles = " | ".join(f"{service} {versions.get(service, '')}".strip() for service in services)
    lines = [
        f"| delivery, messages per write | {titles} | ratio | {level:.4g} % interval | dropped |",
        "| --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in rows:
        delivery, _, per_write = row["variant"].partition("-x")
        at_least = ["&ge; " if (service, row["variant"]) in bound else "" for service in services]
        own_ms, other_ms = (float(row[name]) / 1000 for name in ("service_mean", "other_mean"))
        cells = [
            f"{delivery}, {per_write}",
            f"{at_least[0]}{own_ms:,.0f} k/s",
            f"{at_least[1]}{other_ms:,.0f} k/s",
            f"{at_least[0]}{float(row['ratio']):.1f}",
            f"{float(row['ratio_low']):.1f} to {float(row['ratio_high']):.1f}",
            ", ".join(f"{100 * dropped(trials, service, row['variant']):.0f} %" for service in services),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    head = f"Messages delivered to Python, taking turns, {rows[0]['pairs']} fresh processes each. "
    return head + origin(bundle, command=command) + "\n".join(lines) + "\n"


def sessions(bundle: Path, command: str = "") -> str:
    """The report's table of gateways side by side, and its chart."""
    report = (bundle / "report/report.md").read_text()
    section = report.split("## Gateways side by side", 1)[1].split("\n## ", 1)[0]
    tables = [line.rstrip() for line in section.splitlines() if line.startswith(("|", "**"))]
    # A blank line around each caption.
    rows = "\n".join(f"\n{line}\n" if line.startswith("**") else line for line in tables)
    shutil.copyfile(bundle / "report/gateways.png", RESULTS.parent / GATEWAYS)
    picture = f"![CPU per frame against lines of code, with the memory of a session]({GATEWAYS})"
    return f"Means over processes that take turns. {origin(bundle, command=command)}{rows.strip()}\n\n{picture}\n"


def two_cpus(bundle: Path, command: str = "") -> str:
    """The report's table of gateways by variant."""
    report = (bundle / "report/report.md").read_text()
    caption, rows = "", []
    for line in report.split("## Gateways side by side", 1)[1].split("\n## ", 1)[0].splitlines():
        if line.startswith("**"):
            caption = line
        elif line.startswith("|") and "by variant" in caption:
            rows.append(line.rstrip())
    if not rows:
        sys.exit(f"{bundle} has no table of variants: it is not a bundle of plans/two-cpus.yaml")
    roles = json.loads((bundle / "run.json").read_text())["cpu_roles"]
    sides = "service and generator share both" if "shared(" in roles["worker"] else "the generator has CPUs of its own"
    head = f"{caption.strip('*')}; means over processes that take turns. "
    return head + origin(bundle, command=command, sides=sides) + "\n".join(rows) + "\n"


def capacity(bundles: list[Path], command: str = "") -> str:
    """A table with one row for each search."""
    lines = [
        "| gateway | CPU | P &ge; 0.5 at (95 %) | spread | trials | confirmed | first solid fail |"
        " what failed first | bound by | CPU per session |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | ---: |",
    ]
    in_turn = []
    shares: dict[str, list[tuple[float, CapacityEstimate]]] = {}
    for bundle in bundles:
        run = json.loads((bundle / "run.json").read_text())
        cpus = run["plan"]["cpu"]["service"]["cpus"]
        found = [search for search in run["searches"] if search["found"] and search["found"].get("capacity")]
        lines += [capacity_row(search, cpus) for search in found]
        in_turn += [search["found"]["capacity"]["in_turn"] for search in found]
        for search in found:
            if one := search["found"]["capacity"]["estimate"]:
                shares.setdefault(search["service"], []).append((cpus, CapacityEstimate(**one)))
    if not in_turn:
        sys.exit("no bundle has a search with a capacity: search again, bundles up to schema 2 have none")
    head = (
        "The number of sessions up to which a trial on a fresh process meets the objective with a probability of 0.5 or"
        " more, on a share of a CPU, with its 95 % interval; confirmed by 5 of 5 or 8 of 9 trials of their own"
    )
    # With fewer than six services in turn, a slow drift of the machine is in no interval.
    within = "; intervals hold within their run" if min(in_turn) < 6 else ""
    table = f"{head}{within}. Searched by\n" + origin(*bundles, command=command) + "\n".join(lines) + "\n"
    return table + whole_cpus(shares)


def whole_cpus(shares: dict[str, list[tuple[float, CapacityEstimate]]]) -> str:
    """A table of the services that were searched on two shares of a CPU or more; empty without any."""
    fits = {service: fit for service, found in shares.items() if (fit := whole_cpu(found))}
    if not fits:
        return ""
    lines = [
        "| gateway | on a whole CPU, fitted (95 %) | grows with the share to the power of |",
        "| --- | ---: | ---: |",
    ]
    for service, fit in fits.items():
        lines.append(f"| {service} | {fit.load:,.0f} [{fit.low:,.0f}, {fit.high:,.0f}] | {fit.power:.2f} |")
    head = (
        "\nFitted, not measured: the capacity as a power of the share, from the shares above. The interval is that of"
        " the searches and doesn't say how well a power describes what lies beyond them.\n\n"
    )
    return head + "\n".join(lines) + "\n"


def capacity_row(search: dict, cpus: float) -> str:  # type: ignore[type-arg]
    """A search as a row."""
    found, one = search["found"], search["found"]["capacity"]["estimate"]
    sign = "&ge; " if found["at_least"] else ""
    gates = [gate(failed) for failed in found["gates"]]
    edge = {"latency": "a clean latency edge", "errors": "an error cliff", None: ""}[found["edge"]]
    load = one["load"] if one else found["confirmed"]
    cells = [
        search["service"],
        f"{cpus:g}",
        f"{one['load']:,.0f} [{one['low']:,.0f}, {one['high']:,.0f}]" if one else "—",
        f"{one['spread']:.1%}" if one else "—",
        f"{one['trials']}" if one else "—",
        f"{sign}{found['confirmed']:,}" if found["confirmed"] is not None else "not confirmed",
        f"{found['first_solid_fail']:,}" if found["first_solid_fail"] is not None else "—",
        ", ".join(filter(None, [gates[0] if gates else "", edge])) or "—",
        found["bound_by"] or "—",
        f"{1000 * cpus / load:.2f} ms/s" if load else "—",
    ]
    return f"| {' | '.join(cells)} |"


def gate(objective: dict) -> str:  # type: ignore[type-arg]
    """The figure of an objective as text."""
    figure = objective["figure"]
    if isinstance(figure, str):
        return figure.replace("_", " ")
    at = figure["percentile_ms"]
    return f"{at['histogram']} p{at['percentile']:g} > {objective['at_most']:g} ms"


def bench(folders: list[Path], command: str = "./justw bench") -> str:
    """The rows of `just bench` that have figures; a row missing in the first folder comes from the next ones."""
    times = [[Row(**row) for row in json.loads((folder / "summary.json").read_text())] for folder in folders]
    filled = {row.name: row for time in reversed(times) for row in time if row.ours is not None}
    again = [row.name for row in times[0] if row.ours is None and row.command and row.name in filled]
    rows = [filled[asked.name] for asked in ROWS if asked.name in filled]
    head = "Means over fresh processes that take turns, with the floor's programs before and after. "
    bundles = sorted(path.parent for folder in folders for path in folder.glob("*/run.json"))
    text = head + origin(*bundles, command=command) + markdown(rows)
    if again:
        text += f"\nMeasured again by itself, because trials were invalid the first time: {', '.join(again)}.\n"
    return text


def dropped(trials: list[dict[str, str]], service: str, variant: str) -> float:
    """The share of sent messages that a service dropped, over all its trials."""
    own = [row for row in trials if (row["service"], row["variant"]) == (service, variant)]
    return sum(int(row["messages_dropped"]) for row in own) / sum(int(row["messages_sent"]) for row in own)


def table(bundle: Path, name: str) -> list[dict[str, str]]:
    """The rows of a CSV table of the report."""
    with (bundle / "report" / name).open() as file:
        return list(csv.DictReader(file))


def splice(part: str, text: str) -> None:
    """Writes a part between its markers, and updates the README's rows."""
    RESULTS.write_text(replaced(RESULTS.read_text(), part, text))
    readme_highlights.main()


def write(part: str, evidence: Path, command: str) -> None:
    """Writes a part from its bundle (`bench`: from its folder), and says that `command` made it. Raises `KeyError`
    for an unknown part."""
    makers: dict[str, Callable[[], str]] = {
        "results": lambda: overview(evidence, command=command),
        "comparison": lambda: comparison(evidence, command),
        "sessions": lambda: sessions(evidence, command),
        "two-cpus": lambda: two_cpus(evidence, command),
        "capacity": lambda: capacity([evidence], command),
        "bench": lambda: bench([evidence], command),
    }
    splice(part, makers[part]())


def main() -> int:
    match sys.argv[1:]:
        case ["results", bundle, chart]:
            splice("results", overview(Path(bundle), chart))
        case ["comparison", bundle]:
            splice("comparison", comparison(Path(bundle)))
        case ["sessions", bundle]:
            splice("sessions", sessions(Path(bundle)))
        case ["two-cpus", bundle]:
            splice("two-cpus", two_cpus(Path(bundle)))
        case ["capacity", *bundles] if bundles:
            splice("capacity", capacity([Path(bundle) for bundle in bundles]))
        case ["bench", *folders] if folders:
            splice("bench", bench([Path(folder) for folder in folders]))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
