"""The league: servers of other projects (services/league), measured beside each other.

Usage: league.py build [NAME…]        builds servers; one that can't be had is left out with the reason
       league.py build --ci           builds those that CI measures
       league.py check [NAME…]        starts each built server and climbs it for a second: all must be answered
       league.py plan                 writes plans/league*.yaml from all league.toml
       league.py run [--minutes N] [--large]
                                      measures them at this commit, archives the evidence, writes docs/LEAGUE.md; what
                                      was stopped, also after N minutes, goes on with the same command; --large: the
                                      plans for a machine with six CPUs or more, of which the page has nothing
       league.py page [--price P] [--of COMMIT]
                                      writes docs/LEAGUE.md from the archive, or archives what was measured at COMMIT
                                      before; P: US dollars per vCPU-hour, 0.04 without it
LADDER names the ladder program; without it, target/release/ladder.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import league_build
import league_check
import league_plans
from league_servers import ROOT, LeagueError, Server, choose, load

LADDER = Path(os.environ.get("LADDER") or ROOT / "target/release/ladder")


def build(servers: list[Server], *, named: bool) -> int:
    """Builds servers; leaving out one that was named is a failure."""
    left_out = league_build.build(servers)
    print(f"{len(servers) - len(left_out)} of {len(servers)} servers are built")
    return 1 if left_out and named else 0


def check(servers: list[Server]) -> int:
    """Checks servers and prints one line for each."""
    worst = 0
    for server in servers:
        mistakes = league_check.check(server, LADDER)
        print(f"{server.name}: {'; '.join(mistakes) or 'answers everything'}", flush=True)
        worst = max(worst, 1 if mistakes else 0)
    return worst


def plan(servers: list[Server]) -> int:
    """Writes the plans, and prints what each takes."""
    files = league_plans.write(servers)
    if not LADDER.is_file():
        print(f"{len(files)} plans; their length is not known, because {LADDER} is not built")
        return 0
    found = league_plans.checked(LADDER, files)
    print("\n".join(line for line, _ in found))
    seconds = sum(each for file, (_, each) in zip(files, found, strict=True) if league_plans.is_measured(file))
    print(f"the league is at most {seconds / 60:.0f} minutes under load, and starts servers between trials")
    return 0


def run(arguments: list[str], servers: dict[str, Server]) -> int:
    """Measures and publishes; 3 where something stopped it. Imports are here, because the analysis needs libraries that
    building doesn't."""
    import league_page
    import league_run
    import measure_results

    parser = argparse.ArgumentParser(prog="league.py run", description="measures the league, in less than two hours")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on from there")
    parser.add_argument(
        "--large",
        action="store_true",
        help="the plans for six CPUs or more, with capacities: some eight hours; leaves reports, and the page as it is",
    )
    options = parser.parse_args(arguments)
    until = measure_results.end_of(options.minutes, parser)
    measure_results.heed_sigterm()
    try:
        folder = league_run.measure(servers, LADDER, until, large=options.large)
        if options.large:
            print(f"reports: {folder.relative_to(ROOT)}/*/report/report.html")
            return 0
        league_run.archive(folder)
    except (measure_results.NotEndedError, KeyboardInterrupt) as stopped:
        why = str(stopped) or "stopped; the same command goes on from there"
        print(f"league: {why}", file=sys.stderr)
        return 3
    league_page.write(servers)
    return 0


def page(arguments: list[str], servers: dict[str, Server]) -> int:
    """Writes docs/LEAGUE.md. The imports: as in `run`."""
    import league_page
    import league_run
    import measure_results

    parser = argparse.ArgumentParser(prog="league.py page", description="writes docs/LEAGUE.md")
    parser.add_argument("--price", type=float, default=league_page.PRICE, help="US dollars per vCPU-hour")
    parser.add_argument("--of", metavar="COMMIT", help="archive what was measured at this commit before")
    options = parser.parse_args(arguments)
    if options.of:
        try:
            commit = measure_results.git("rev-parse", f"{options.of}^{{commit}}")
        except measure_results.NotEndedError as error:
            raise LeagueError(str(error)) from error
        league_run.archive(league_run.folder_of(commit))
    league_page.write(servers, options.price)
    return 0


def main() -> int:
    servers = load()
    match sys.argv[1:]:
        case ["build", "--ci"]:
            return build(choose(servers, list(league_plans.CI)), named=True)
        case ["build", *names]:
            return build(choose(servers, names), named=bool(names))
        case ["check", *names]:
            gone = {} if names else league_build.left_out()
            return check([server for server in choose(servers, names) if server.name not in gone])
        case ["plan"]:
            return plan(list(servers.values()))
        case ["run", *arguments]:
            return run(arguments, servers)
        case ["page", *arguments]:
            return page(arguments, servers)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LeagueError as error:
        print(f"league: {error}", file=sys.stderr)
        sys.exit(2)
