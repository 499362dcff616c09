"""The league: servers of other projects (services/league), measured beside each other.

Usage: league.py build [NAME…]        builds servers; one that can't be had is left out with the reason
       league.py build --ci           builds those that CI measures
       league.py check [NAME…]        starts each built server and climbs it for a second: all must be answered
       league.py plan                 writes plans/league*.yaml from all league.toml
       league.py plans                prints the plans that `run` measures
       league.py services PLAN        prints --service options for the built servers of a plan; 3: none is built
       league.py page [--price P] BUNDLE…
                                      writes docs/LEAGUE.md; P: US dollars per vCPU-hour, 0.04 without it
LADDER names the ladder program; without it, target/release/ladder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import league_build
import league_check
import league_plans
import service_tasks
from league_servers import ROOT, LeagueError, Server, choose, load

LADDER = Path(os.environ.get("LADDER") or ROOT / "target/release/ladder")
PRICE = 0.04


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
    minutes = sum(seconds for file, (_, seconds) in zip(files, found, strict=True) if is_measured(file)) / 60
    print(f"the league is at most {minutes:.0f} minutes under load, and starts servers between trials")
    return 0


def is_measured(file: Path) -> bool:
    """Whether a plan is one of the league's own, and not one of CI."""
    return not file.stem.startswith("league-ci")


def services(name: str) -> int:
    """Prints options that leave out the servers that were not built; nothing where all were. 3: none was built."""
    listed = league_plans.services_of(ROOT / f"plans/{name}.yaml")
    gone = league_build.left_out()
    ready = [each for each in listed if each not in gone]
    if not ready:
        print(f"left out: {name}: none of its servers is built", file=sys.stderr)
        return service_tasks.NOT_HERE
    if len(ready) < len(listed):
        print(" ".join(f"--service {each}" for each in ready))
    return 0


def page(arguments: list[str], servers: dict[str, Server]) -> int:
    """Writes docs/LEAGUE.md. Only here, because the analysis needs libraries that building doesn't."""
    import league_page

    price = PRICE
    if arguments[:1] == ["--price"]:
        price, arguments = float(arguments[1]), arguments[2:]
    if not arguments:
        raise LeagueError("page needs the folders of bundles")
    league_page.write([Path(bundle) for bundle in arguments], servers, price)
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
        case ["plans"]:
            print("\n".join(file.stem for file in league_plans.plans(servers.values()) if is_measured(file)))
            return 0
        case ["services", name]:
            return services(name)
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
