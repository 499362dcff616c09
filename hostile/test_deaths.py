"""Processes that are killed or stopped at random moments of a run: finished trials stay, and the run can be resumed."""

import os
import random
import resource
import signal
import time
from collections.abc import Callable

import pytest

from hostile.ladder_runs import Climb, finished_files, no_file_changed
from hostile.target import descriptors_of, until

SEED = 20
KILLS_OF_LADDER = 8


def test_a_run_whose_ladder_is_killed_at_any_moment_is_resumed_to_its_end(
    climb: Callable[..., Climb], count: Callable[[str, int], None]
) -> None:
    chance = random.Random(SEED)
    running = climb()
    until(running.states, "the run has begun")
    for number in range(KILLS_OF_LADDER):
        # The moments are random; nothing waits for them to be good ones.
        time.sleep(chance.uniform(0, 1.2))
        if running.process.poll() is not None:
            break
        running.kill()
        count("faults", 1)
        kept = finished_files(running.bundle)
        running.leaves_nothing_running()
        running = climb(resume=True)
        until(running.is_under_way, f"the run was resumed after kill {number + 1}")
        no_file_changed(kept, finished_files(running.bundle))
    kept = finished_files(running.bundle)
    assert running.wait() in (0, 2), running.printed()
    assert running.states() == ["finished"] * 4, running.printed()
    no_file_changed(kept, finished_files(running.bundle))
    assert not list(running.bundle.rglob("*.tmp")), "a temporary file was left"


@pytest.mark.parametrize("victim", ["bench_server.py", "wse-bench"])
@pytest.mark.parametrize("moment", ["as it starts", "in the trial"])
def test_a_process_that_is_killed_costs_its_own_trial_alone(
    climb: Callable[..., Climb], count: Callable[[str, int], None], victim: str, moment: str
) -> None:
    running = climb()
    until(lambda: running.finished() >= 1, "the first trial has a result")
    first = finished_files(running.bundle)
    until(lambda: running.family().get(victim), f"{victim} runs")
    if moment == "in the trial":
        until(lambda: "wse-bench" in running.family(), "the worker runs")
        time.sleep(0.4)
    for pid in running.family().get(victim, ()):
        os.kill(pid, signal.SIGKILL)
    count("faults", 1)
    assert running.wait() in (0, 1, 2), running.printed()
    states = running.states()
    assert running.finished() >= 3, (states, running.printed())
    assert "pending" not in states, states
    no_file_changed(first, finished_files(running.bundle))
    running.leaves_nothing_running()


def test_a_service_that_is_stopped_makes_its_trial_invalid_and_no_other(
    climb: Callable[..., Climb], count: Callable[[str, int], None]
) -> None:
    running = climb()
    until(lambda: running.finished() >= 1, "the first trial has a result")
    first = finished_files(running.bundle)
    (service,) = until(
        lambda: "wse-bench" in running.family() and running.family().get("bench_server.py"), "the service runs"
    )
    os.kill(service, signal.SIGSTOP)
    count("faults", 1)
    time.sleep(1)
    os.kill(service, signal.SIGCONT)
    assert running.wait() in (0, 2), running.printed()
    states = running.states()
    assert running.finished() + states.count("failed") == 4, states
    assert running.finished() >= 3, (states, running.printed())
    no_file_changed(first, finished_files(running.bundle))


@pytest.mark.parametrize("victim", ["bench_server.py", "wse-bench", "ladder"])
def test_a_process_without_free_descriptors_in_a_trial_costs_no_finished_trial(
    climb: Callable[..., Climb], count: Callable[[str, int], None], victim: str
) -> None:
    running = climb()
    until(lambda: running.finished() >= 1, "the first trial has a result")
    first = finished_files(running.bundle)
    (process,) = until(
        lambda: "wse-bench" in running.family() and (running.family() | {"ladder": [running.process.pid]}).get(victim),
        f"{victim} runs",
    )
    # It keeps the descriptors that it has and gets no more, as long as it lives.
    most = resource.prlimit(process, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(process, resource.RLIMIT_NOFILE, (descriptors_of(process), most))
    count("faults", 1)
    running.wait()
    running.leaves_nothing_running()
    no_file_changed(first, finished_files(running.bundle))
    if victim != "ladder":
        states = running.states()
        assert running.finished() >= 3, (states, running.printed())
        assert "pending" not in states, states
        return
    kept = finished_files(running.bundle)
    resumed = climb(resume=True)
    assert resumed.wait() in (0, 2), resumed.printed()
    assert "pending" not in resumed.states(), resumed.printed()
    assert resumed.finished() >= 3, (resumed.states(), resumed.printed())
    no_file_changed(kept, finished_files(resumed.bundle))


def test_a_run_that_is_interrupted_ends_at_once_and_is_resumed(
    climb: Callable[..., Climb], count: Callable[[str, int], None]
) -> None:
    running = climb()
    until(lambda: running.finished() >= 1, "the first trial has a result")
    running.process.send_signal(signal.SIGTERM)
    count("faults", 1)
    assert running.wait(30) != 0
    running.leaves_nothing_running()
    kept = finished_files(running.bundle)
    resumed = climb(resume=True)
    assert resumed.wait() in (0, 2), resumed.printed()
    assert resumed.states() == ["finished"] * 4, resumed.printed()
    no_file_changed(kept, finished_files(resumed.bundle))
