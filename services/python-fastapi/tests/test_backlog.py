"""Tests of the backlog, and of the timer wheel that schedules the visits."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_fastapi.backlog import Backlog
from python_fastapi.rounds import ROUND_SECONDS, Rounds

FRAME = bytes(640)


def frames(count: int, first: int = 0) -> list[bytes]:
    return [bytes([(first + number) % 256]) * 640 for number in range(count)]


def test_a_batch_is_all_that_waits_in_the_order_in_which_it_came() -> None:
    backlog = Backlog()
    backlog.add(frames(2), 1.0)
    backlog.add(frames(1, 2), 2.0)
    batch = backlog.take()
    assert batch.audio == b"".join(frames(3))
    assert (batch.oldest, batch.frames, batch.oldest_at, batch.newest_at) == (1, 3, 1.0, 2.0)
    assert backlog.frames == []


def test_the_oldest_frames_are_dropped_and_reported_once() -> None:
    backlog = Backlog()
    backlog.add(frames(3), 1.0)
    backlog.add(frames(4, 3), 2.0)
    assert backlog.drop_oldest(2) == 5
    lost = backlog.take_lost(4.0)
    assert lost is not None
    assert (lost.oldest, lost.frames, lost.oldest_age_ms, lost.newest_age_ms) == (1, 5, 3000.0, 2000.0)
    assert backlog.take_lost(4.0) is None
    batch = backlog.take()
    assert (batch.oldest, batch.frames, batch.audio) == (6, 2, b"".join(frames(2, 5)))


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans())))
def test_covered_frames_are_contiguous_when_any_are_dropped(steps: list[tuple[int, bool]]) -> None:
    backlog, expected, added = Backlog(), 1, 0
    for step, (count, is_tick) in enumerate(steps):
        backlog.add([FRAME] * count, float(step))
        added += count
        backlog.drop_oldest(10)
        if is_tick:
            lost = backlog.take_lost(float(step))
            if lost:
                assert lost.oldest == expected
                expected += lost.frames
            batch = backlog.take()
            assert batch.oldest == expected
            expected += batch.frames
            assert expected == added + 1


def test_an_entry_runs_not_before_its_time_and_in_order() -> None:
    async def run() -> list[tuple[str, float]]:
        ran: list[tuple[str, float]] = []
        done = asyncio.Event()
        rounds, started_at = Rounds(asyncio.get_running_loop()), time.monotonic()

        def record(name: str) -> None:
            ran.append((name, time.monotonic() - started_at))
            if name == "late":
                done.set()

        rounds.at(started_at + 0.03, lambda: record("late"))
        rounds.at(started_at + 0.01, lambda: record("early"))
        await done.wait()
        return ran

    (early, early_at), (late, late_at) = asyncio.run(run())
    assert (early, late) == ("early", "late")
    assert early_at >= 0.01
    assert late_at >= 0.03


def test_an_entry_for_the_next_round_never_runs_in_the_same_turn() -> None:
    async def run() -> bool:
        rounds = Rounds(asyncio.get_running_loop())
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def first() -> None:
            turn.append(True)
            time.sleep(4 * ROUND_SECONDS)  # A stall, after which several rounds are due at once.
            rounds.soon(lambda: done.set_result(bool(turn)))
            asyncio.get_running_loop().call_soon(turn.clear)

        turn: list[bool] = []
        rounds.soon(first)
        return await done

    assert asyncio.run(run()) is False


@pytest.mark.parametrize("limit", [1, 10])
def test_nothing_is_dropped_up_to_the_limit(limit: int) -> None:
    backlog = Backlog()
    backlog.add([FRAME] * limit, 0.0)
    assert backlog.drop_oldest(limit) == 0
