"""Services that only a plan describes attack their worker: it stays small, and the trial ends with its reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostile.described_service import ATTACKS, Attack, DescribedService, plan
from hostile.ladder_runs import RUN_ID, Climb

CONNECTIONS = 4
MOST_MEBIBYTES = 160
"""Resident memory of a worker under attack. A frame may have 16 MiB, of which a few copies exist for a moment."""


def climb(service: DescribedService, folder: Path) -> Climb:
    """Loads the service, to the end."""
    file = folder / "plan.yaml"
    file.write_text(plan(service.port))
    running = Climb(folder / "results", str(file), "--run-id", RUN_ID)
    try:
        running.wait()
    finally:
        running.clean()
    return running


def result_of(running: Climb) -> dict[str, Any]:
    """The result of the only trial."""
    (file,) = running.bundle.glob("trials/**/result.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_service_that_attacks_its_worker_costs_its_own_connections(
    attack: Attack, tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    with DescribedService(attack) as service:
        running = climb(service, tmp_path)
    count("inputs", service.sent)
    assert running.process.returncode in (0, 1, 2), running.printed()
    assert running.states() == ["finished"], running.printed()
    result = result_of(running)
    ended = result["connections"]["closed_early"]
    if attack.reason is None:
        assert ended == {}, running.printed()
        assert result["messages"]["wrong"] + result["messages"]["duplicates"] > CONNECTIONS, result["messages"]
    else:
        assert ended == {attack.reason: CONNECTIONS}, running.printed()
        assert f"{CONNECTIONS} connections ended early ({CONNECTIONS} {attack.reason})" in running.printed()
    (worker,) = result["workers"]
    assert worker["rss_bytes"] < MOST_MEBIBYTES << 20, worker


def test_handshakes_that_never_end_are_a_trial_with_its_reason(
    tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    with DescribedService(None) as service:
        running = climb(service, tmp_path)
    count("inputs", service.sent)
    (trial,) = running.run_file()["trials"]
    assert trial["state"]["state"] == "failed", running.printed()
    assert f"{CONNECTIONS} x timeout" in trial["state"]["reason"], running.printed()
    assert f"{CONNECTIONS} x timeout" in running.printed()
