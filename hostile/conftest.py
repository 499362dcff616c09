"""Starts targets for tests, and prints at the end how much was tried."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile.ladder_runs import Climb
from hostile.target import ENGINE, GATEWAYS, INFERENCE, Program, Target

TRIED: Counter[str] = Counter()
LEAST = {"inputs": 210_000, "faults": 25}
"""What README.md says of the whole suite."""


@pytest.fixture
def count() -> Callable[[str, int], None]:
    """Counts what a test tried: `inputs` that a peer sent, `faults` of processes, disks and clocks."""

    def add(kind: str, number: int = 1) -> None:
        TRIED[kind] += number

    return add


@pytest.fixture
def start() -> Iterator[Callable[..., Target]]:
    """Starts targets that are stopped after the test."""
    started: list[Target] = []

    def begin(program: Program, **options: Any) -> Target:
        started.append(Target(program, **options))
        return started[-1]

    yield begin
    for target in started:
        target.stop()


@pytest.fixture
def climb(tmp_path: Path) -> Iterator[Callable[..., Climb]]:
    """Starts climbs, or goes on with the one that was interrupted; kills what they leave."""
    started: list[Climb] = []

    def begin(resume: bool = False, **environment: str) -> Climb:
        results = tmp_path / "results"
        started.append(Climb.resume(results) if resume else Climb.begin(results, **environment))
        return started[-1]

    yield begin
    for one in started:
        one.clean()


@pytest.fixture(params=[ENGINE, *GATEWAYS], ids=lambda program: program.name)
def target(request: pytest.FixtureRequest, start: Callable[..., Target]) -> Target:
    """Each service that speaks WebSocket."""
    return start(request.param)


@pytest.fixture(params=[ENGINE, *GATEWAYS, INFERENCE], ids=lambda program: program.name)
def listener(request: pytest.FixtureRequest, start: Callable[..., Target]) -> Target:
    """Each service, and the inference simulator, which speaks HTTP alone."""
    return start(request.param)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how much was tried, and whether anything was lost."""
    if TRIED:
        failed = len(terminalreporter.stats.get("failed", ()))
        lost = "nothing lost" if not failed else f"{failed} tests failed"
        inputs = f"{TRIED['inputs']:,}".replace(",", " ")
        terminalreporter.write_line(f"hostile: {inputs} inputs, {TRIED['faults']} faults, {lost}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails if the whole suite tried less than README.md says."""
    is_whole = session.config.args == ["hostile"] and not session.config.option.keyword
    if is_whole and session.exitstatus == 0 and any(TRIED[kind] < least for kind, least in LEAST.items()):
        session.exitstatus = 1
