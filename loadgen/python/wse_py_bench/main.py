"""The main function of all three programs: finds the service, climbs the profile's ladders, prints and saves them."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import get_args

from bench_format.schemas import Message, Name

from .bench import Bench, Outcome
from .bundle import Bundle
from .cli import Options, parse
from .connection import ConnectError, Target, open_blocking
from .judge import Judge, JudgeError, find_judge
from .machine import raise_open_files
from .profiles import PROFILES, Ladder
from .service import Service, ServiceError
from .tables import as_json, table


def main(profile: str, description: str, arguments: Sequence[str]) -> int:
    """Runs a profile's tests and returns the exit code."""
    options = parse(profile, description, arguments)
    raise_open_files()
    try:
        judge = find_judge()
        _check_connectivity(options)
    except JudgeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ConnectError as error:
        address = f"{options.host}:{options.port}"
        hint = "is it started, and is WSE_BENCH_SECRET or WSE_BENCH_TOKEN its own?"
        print(f"error: the service at {address} refuses connections: {error}; {hint}", file=sys.stderr)
        return 1
    bench = _create_bench(options, judge)
    results: list[tuple[Ladder, list[Outcome]]] = []
    for ladder in PROFILES[profile](options):
        if ladder.workload not in options.tests:
            continue
        outcomes = [bench.measure(ladder, tier) for tier in ladder.tiers]
        results.append((ladder, outcomes))
        if not options.json:
            print(table(ladder, outcomes), flush=True)
    if options.json:
        print(as_json(results))
    if bench.bundle is not None:
        bench.bundle.finish()
        folder = bench.bundle.folder
        _print_note(f"the bundle is {folder}; its report: ./justw analyze-results {folder}")
    return 0 if not any(outcome.problems() for _, outcomes in results for outcome in outcomes) else 1


def _check_connectivity(options: Options) -> None:
    socket, _ = open_blocking(Target(f"{options.host}:{options.port}", options.token, Message()))
    socket.close()


def _create_bench(options: Options, judge: Judge) -> Bench:
    run = f"py-bench-{options.profile}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    service, name, version, cpus = None, options.service or "unknown", "", frozenset[int]()
    try:
        service = Service(options.stats_url)
        stats = service.read().stats
        name, version, cpus = options.service or stats.service, stats.version, service.cpus()
    except ServiceError as error:
        service = None
        _print_note(f"{error} Without its counters nothing says what arrived, and the books can't be balanced.")
    name = service_name(name)
    bundle = None if options.results is None else Bundle(options.results / run, options, name, version, cpus)
    return Bench(options, judge, service, name, run, bundle)


def service_name(name: str) -> str:
    """A service's name for itself, which becomes the name of a folder; exits where it can't be one."""
    if not re.fullmatch(get_args(Name)[1], name) or name.endswith("\n"):
        raise SystemExit(f"error: {name!r} can't name the service's results; give --service with a name like rust-sync")
    return name


def _print_note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)
