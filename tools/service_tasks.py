"""Builds, tests, lints and checks the services of the registry, each with its toolchain.

Usage: service_tasks.py build|test|lint [SERVICE…]   without names: all that have something to build
       service_tasks.py build --foreign               builds those outside the Rust workspace
       service_tasks.py needed NAME [OPTION…]         builds what a plan or a service needs; when a service of the plan
                                                      can't be built here, prints --service options for the others
       service_tasks.py built SERVICE…                builds services and prints the names of those that could be built
                                                      here; a build that fails is an error
       service_tasks.py toolchains                    installs every toolchain
       service_tasks.py gateways                      as in CI: lint, unit tests and contract of all gateways
       service_tasks.py conformance [--level core] [SERVICE…]
       service_tasks.py images NAME…                  builds the files of these images; ignores images of no service
       service_tasks.py record SERVICE…               all cases, recorded in services/<name>/conformance.json

A toolchain is a program in tools/toolchains/. It installs what it needs once into .tools/ and prints the environment
for commands, one KEY=VALUE per line (PATH=FOLDER: put in front of PATH). When the toolchain isn't available on this
machine, it prints why and exits with 3: tasks for all services then skip its services with that message, and tasks that
name one fail. A toolchain that takes very long is built only where services were named; then SERVICES_NAMED is set.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import conformance_records as records
from service_registry import ROOT, Service, gateways, load, with_images

NOT_HERE = 3
NAMED = "SERVICES_NAMED"
# Set once everything is built, so that nothing that wasn't named is built again while something else runs it.
BUILT = "SERVICES_BUILT"
# Gateways that are checked at a time.
AT_A_TIME = 3
LADDER = ROOT / "target/release/ladder"
# Toolchains of services that cargo and maturin build with the rest of the workspace.
WORKSPACE = ("rust", "extension")
PLAN_SERVICES = re.compile(r"^services:\s*\[([^\]]*)\]", re.MULTILINE)


class NotHereError(Exception):
    """A toolchain isn't available on this machine; the message is the reason that it printed."""


def main() -> int:
    options = arguments()
    services = load()
    if names_services(options, services):
        os.environ[NAMED] = "1"
    if options.task == "needed":
        return needed(services, options.services[0], options.options)
    if options.task == "images":
        made_of = [each for each in with_images(services) if each.name in options.services]
        return each_with_its_toolchain(made_of, ["build"], named=True)
    try:
        chosen = choose(services, options.services)
    except KeyError as error:
        print(f"service_tasks: no service is called {error}; there are {', '.join(services)}", file=sys.stderr)
        return 2
    match options.task:
        case "built":
            ready, worst = built(chosen, named=False, to=sys.stderr)
            print("\n".join(each.name for each in ready))
            return worst
        case "toolchains":
            return prepare(services.values())
        case "gateways":
            return check_gateways(gateways(services))
        case "conformance":
            return conformance(chosen or gateways(services), options.level, named=bool(chosen))
        case "record":
            return record(chosen)
        case task:
            buildable = [each for each in services.values() if each.build and not each.like]
            if options.foreign:
                buildable = [each for each in buildable if not of_the_workspace(each)]
            return each_with_its_toolchain(chosen or buildable, [task], named=bool(chosen))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = ["build", "test", "lint", "toolchains", "gateways", "conformance", "record", "needed", "images", "built"]
    parser.add_argument("task", choices=tasks)
    parser.add_argument("services", nargs="*", metavar="SERVICE")
    parser.add_argument("--level", choices=["core", "strict"], default="strict")
    parser.add_argument("--foreign", action="store_true")
    if sys.argv[1:2] == ["needed"]:
        # Arguments after the name are for `ladder run`.
        return argparse.Namespace(task="needed", services=sys.argv[2:3], options=sys.argv[3:])
    return parser.parse_args()


def names_services(options: argparse.Namespace, services: dict[str, Service]) -> bool:
    """Whether services were named by the user: not all of a kind, and not those of a plan."""
    match options.task:
        case "needed":
            return "--service" in options.options or options.services[0] in services
        case "built" | "images":
            return False
    return bool(options.services)


def choose(services: dict[str, Service], names: list[str]) -> list[Service]:
    return [services[name] for name in names]


def prepare(services: Iterable[Service]) -> int:
    """Installs the toolchains of these services one after the other, because several install Debian packages."""
    for toolchain in sorted({each.build.toolchain for each in services if each.build}):
        try:
            environment(toolchain)
        except NotHereError as error:
            print(f"left out: what is built with {toolchain}: {error}")
    return 0


@functools.cache
def environment(toolchain: str) -> dict[str, str]:
    """Installs a toolchain and returns the environment for its commands."""
    done = subprocess.run([ROOT / "tools/toolchains" / toolchain], capture_output=True, text=True)
    if done.returncode == NOT_HERE:
        raise NotHereError(done.stderr.strip().splitlines()[-1])
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        raise SystemExit(f"service_tasks: tools/toolchains/{toolchain} failed with exit code {done.returncode}")
    found = dict(os.environ)
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        found[key] = f"{value}:{found['PATH']}" if key == "PATH" else value
    return found


def of_the_workspace(service: Service) -> bool:
    """Whether the service is built with the Rust workspace."""
    return service.build is not None and service.build.toolchain in WORKSPACE


def needed(services: dict[str, Service], name: str, options: list[str]) -> int:
    """Builds what a plan or a service needs beside the workspace; skips services of a plan that can't be built here."""
    wanted = [services[each] for each in named_by(name, options) if each in services]
    left_out = []
    for each in wanted:
        if each.build is None or of_the_workspace(each):
            continue
        match attempt(each, "build", to=sys.stderr):
            case None:
                left_out.append(each)
            case False:
                return 1
    if len(left_out) == len(wanted) > 0:
        return NOT_HERE
    if left_out and "--service" not in options:
        print(" ".join(f"--service {each.name}" for each in wanted if each not in left_out))
    return 0


def named_by(name: str, options: list[str]) -> list[str]:
    """The services of a run: its --service options, else those of the plan `name`, else the service `name`."""
    chosen = [value for option, value in itertools.pairwise(options) if option == "--service"]
    if chosen:
        return chosen
    path = next((path for path in (ROOT / f"plans/{name}.yaml", ROOT / name) if path.is_file()), None)
    if path is None:
        return [name]
    listed = PLAN_SERVICES.search(path.read_text())
    return [each.strip() for each in listed[1].split(",")] if listed else []


def each_with_its_toolchain(services: list[Service], tasks: list[str], *, named: bool) -> int:
    """Runs tasks of services; reports failures at the end, so that one failure doesn't hide another."""
    failed = []
    for each in services:
        try:
            failed += [f"{task} of {each.name}" for task in tasks if not run(each, task)]
        except NotHereError as error:
            if named:
                print(f"service_tasks: {each.name}: {error}", file=sys.stderr)
                return NOT_HERE
            print(f"left out: {each.name}: {error}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def attempt(service: Service, task: str, to: TextIO = sys.stdout) -> bool | None:
    """Runs a task and returns whether it succeeded; `None`, with a message, when its toolchain isn't available."""
    try:
        return run(service, task, to)
    except NotHereError as error:
        print(f"left out: {service.name}: {error}", file=to)
        return None


def run(service: Service, task: str, to: TextIO = sys.stdout) -> bool:
    """Runs one task of a service with output to `to`; returns whether it succeeded."""
    if not service.build:
        raise SystemExit(f"service_tasks: services.{service.name} has no table `build` in services/services.toml")
    line = getattr(service.build, task)
    if not line:
        return True
    if task == "build" and os.environ.get(BUILT) and NAMED not in os.environ:
        # Where the toolchain isn't available, nothing was built.
        environment(service.build.toolchain)
        return True
    print(f"{service.name}: {task}", file=to, flush=True)
    command = ["bash", "-euo", "pipefail", "-c", line]
    # What is printed elsewhere is printed as a whole, errors included.
    errors = None if to is sys.stdout else to
    environ = environment(service.build.toolchain)
    return subprocess.run(command, cwd=service.folder, env=environ, stdout=to, stderr=errors).returncode == 0


def built(services: list[Service], *, named: bool, to: TextIO = sys.stdout) -> tuple[list[Service], int]:
    """The services that were built, and the exit code; an unavailable toolchain is a failure only when `named`."""
    ready, worst = [], 0
    for each in services:
        match attempt(each, "build", to):
            case None:
                worst = max(worst, NOT_HERE if named else 0)
            case False:
                worst = max(worst, 1)
                print(f"failed: build of {each.name}", file=sys.stderr)
            case True:
                ready.append(each)
    return ready, worst


def conformance(services: list[Service], level: str, *, named: bool) -> int:
    ready, worst = built(services, named=named)
    return max(worst, ladder_conformance([each.name for each in ready], level))


def ladder_conformance(
    names: list[str], level: str, *options: str, to: TextIO | None = None, alone: bool = False
) -> int:
    """Checks gateways and returns ladder's exit code. `alone`: once nothing else of this checkout loads the machine."""
    if not names:
        return 0
    turn: list[str | Path] = [ROOT / "tools/turn", "alone"] if alone else []
    command = [*turn, LADDER, "conformance", "--level", level, *options, *names]
    return subprocess.run(command, cwd=ROOT, stdout=to, stderr=to).returncode


def record(services: list[Service]) -> int:
    """Checks gateways by all cases and records the results, with the hash of what they depend on."""
    ready, worst = built(services, named=True)
    for each in ready:
        before = records.inputs(each)
        code = ladder_conformance([each.name], "strict", "--results", str(records.RESULTS))
        worst = max(worst, code)
        if code == 0:
            print(f"wrote {records.write(each, before).relative_to(ROOT)}")
    return worst


def check_gateways(services: list[Service]) -> int:
    """Checks gateways as CI does: lint and unit tests of each, and its contract.

    A gateway is checked by all cases when its record is outdated or it is its turn, else at level `core`. Lint and unit
    tests of the workspace are separate recipes. Several are checked side by side, because most of the cases wait. A
    contract that isn't kept then is checked again alone: a failure due to a busy machine passes, a fault fails again.
    """
    ready, worst = built(services, named=False)
    strict, core = records.divide(ready)
    for reason, each in strict:
        print(f"{each.name}: all cases, because {reason}", flush=True)
    checks = [(each, "strict") for _, each in strict] + [(each, "core") for each in core]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        outcomes = list(pool.map(lambda check: check_gateway(*check), checks))
    failed = [task for tasks, _ in outcomes for task in tasks]
    for (each, level), (_, kept) in zip(checks, outcomes, strict=True):
        if not kept:
            print(f"{each.name}: failed, so it is checked again when nothing else runs", flush=True)
            if ladder_conformance([each.name], level, alone=True) != 0:
                failed.append(f"contract of {each.name}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        worst = max(worst, 1)
    print(f"{len(ready)} gateways, {len(services) - len(ready)} of the registry left out or not built")
    return worst


def check_gateway(service: Service, level: str) -> tuple[list[str], bool]:
    """Checks one gateway and prints the output as a whole; returns what failed, and whether it keeps its contract."""
    failed = []
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        for task in () if of_the_workspace(service) else ("lint", "test"):
            if not run(service, task, output):
                failed.append(f"{task} of {service.name}")
        kept = ladder_conformance([service.name], level, to=output) == 0
        output.seek(0)
        print(output.read(), end="", flush=True)
    return failed, kept


if __name__ == "__main__":
    sys.exit(main())
