"""Breakers, buckets, sequencers and queues: each rule, and comparisons with Python models under random use."""

import gc
import random
import time
import weakref
from collections import OrderedDict
from typing import Any

import pytest
from wse_server import (
    RustCircuitBreaker,
    RustEventSequencer,
    RustPriorityMessageQueue,
    RustPriorityQueue,
    RustSequencer,
    RustTokenBucket,
)

LEVELS = (10, 8, 5, 3, 1)


def test_a_breaker_opens_after_failures_in_a_row() -> None:
    breaker = RustCircuitBreaker(3, 3600)
    for _ in range(5):
        breaker.record_failure()
        breaker.record_failure()
        breaker.record_success()
    assert (breaker.allow(), breaker.state) == (True, "closed")
    for _ in range(3):
        breaker.record_failure()
    assert (breaker.allow(), breaker.state) == (False, "open")
    breaker.record_success()
    assert breaker.state == "open"


def test_a_breaker_closes_when_all_probes_succeed_and_opens_when_one_fails() -> None:
    breaker = RustCircuitBreaker(1, 0.05, 2)
    for verdict in (breaker.record_failure, breaker.record_success):
        breaker.record_failure()
        assert not breaker.allow()
        deadline = time.monotonic() + 10
        while breaker.state == "open":
            assert time.monotonic() < deadline
        assert breaker.state == "half_open"
        assert (breaker.allow(), breaker.allow()) == (True, True)
        breaker.record_success()
        verdict()
        assert breaker.state == ("closed" if verdict == breaker.record_success else "open")


@pytest.mark.parametrize("options", [{"failure_threshold": 0}, {"success_threshold": -1}, {"failure_threshold": 2**32}])
def test_a_breaker_s_thresholds_are_from_1_on(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="give a number from 1"):
        RustCircuitBreaker(**options)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="give seconds from 0 on"):
            RustCircuitBreaker(reset_timeout=seconds)


def test_a_bucket_starts_full_and_a_reset_fills_it_again() -> None:
    bucket = RustTokenBucket(3, 0)
    assert bucket.tokens == 3
    assert [bucket.acquire(tokens) for tokens in (1, 1.5, 1, 0.5, 0)] == [True, True, False, True, True]
    assert bucket.tokens == 0
    bucket.reset()
    assert bucket.tokens == 3


def test_a_bucket_refills_with_time_and_never_beyond_its_capacity() -> None:
    bucket = RustTokenBucket(10, 1000, 0)
    deadline = time.monotonic() + 10
    while not bucket.acquire(9):
        assert time.monotonic() < deadline
    assert RustTokenBucket(10, 1e12, 1000).tokens == 10


def test_a_bucket_starts_with_the_given_tokens() -> None:
    assert RustTokenBucket(10, 0, 4).tokens == 4
    assert not RustTokenBucket(10, 0, 0).acquire(1)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_number_of_tokens_is_finite_and_not_negative(value: float) -> None:
    for make in (
        lambda: RustTokenBucket(value, 1),
        lambda: RustTokenBucket(1, value),
        lambda: RustTokenBucket(1, 1, value),
        lambda: RustTokenBucket(1, 1).acquire(value),
    ):
        with pytest.raises(ValueError, match="give a number from 0 on"):
            make()
    with pytest.raises(TypeError):
        RustTokenBucket("many", 1)  # type: ignore[arg-type]


def test_numbers_count_from_one() -> None:
    sequencer = RustSequencer(10)
    assert sequencer.get_current_seq() == 0
    assert [sequencer.next_seq(), sequencer.next_seq(), sequencer.get_current_seq()] == [1, 2, 2]


def test_a_full_window_forgets_the_oldest_id() -> None:
    sequencer = RustSequencer(3)
    assert [sequencer.is_duplicate(name) for name in "abcdabd"] == [False] * 6 + [True]
    assert sequencer.seen_count() == 3


def test_ids_are_remembered_as_a_model_in_python_remembers_them() -> None:
    seed = random.randrange(2**32)
    numbers = random.Random(seed)
    sequencer, model = RustSequencer(50), OrderedDict[str, None]()
    for _ in range(5000):
        name = f"id-{numbers.randrange(120)}"
        assert sequencer.is_duplicate(name) == (name in model), f"seed {seed}"
        if name not in model:
            model[name] = None
            if len(model) > 50:
                model.popitem(last=False)
    assert sequencer.seen_count() == 50


def test_a_cleanup_forgets_ids_by_age() -> None:
    sequencer = RustSequencer(10)
    assert not sequencer.is_duplicate("a")
    sequencer.cleanup(60)
    assert sequencer.is_duplicate("a")
    deadline = time.monotonic() + 10
    while sequencer.seen_count():
        assert time.monotonic() < deadline
        sequencer.cleanup(0)
    assert not sequencer.is_duplicate("a")


def test_an_invalid_window_and_an_invalid_age_are_refused() -> None:
    for window in (-1, 0, 10**8):
        with pytest.raises(ValueError, match=f"window_size is {window}"):
            RustSequencer(window)
        with pytest.raises(ValueError, match=f"window_size is {window}"):
            RustEventSequencer(window)
    with pytest.raises(ValueError, match="max_age_secs is -1"):
        RustSequencer(1).cleanup(-1)
    with pytest.raises(ValueError, match="1025 bytes"):
        RustSequencer(1).is_duplicate("x" * 1025)
    with pytest.raises(TypeError):
        RustSequencer(1).is_duplicate(5)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        RustSequencer(1).is_duplicate("\ud800")


def test_a_topic_begins_with_its_first_event_and_events_in_order_are_returned_at_once() -> None:
    sequencer = RustEventSequencer()
    first, second = {"a": object()}, object()
    out = sequencer.process_sequenced_event("x", 5, first)
    assert out is not None
    assert out[0] is first
    assert sequencer.process_sequenced_event("x", 6, second) == [second]
    assert sequencer.process_sequenced_event("y", 1, "other topic") == ["other topic"]


def test_events_ahead_wait_for_the_missing_one() -> None:
    sequencer = RustEventSequencer(max_out_of_order=3)
    assert sequencer.process_sequenced_event("x", 1, "one") == ["one"]
    assert sequencer.process_sequenced_event("x", 4, "four") is None
    assert sequencer.process_sequenced_event("x", 3, "three") is None
    assert sequencer.process_sequenced_event("x", 2, "two") == ["two", "three", "four"]
    assert sequencer.process_sequenced_event("x", 2, "two") is None


def test_a_jump_starts_over_with_the_current_event_alone() -> None:
    sequencer = RustEventSequencer(max_out_of_order=100)
    assert sequencer.process_sequenced_event("x", 1, 1) == [1]
    assert sequencer.process_sequenced_event("x", 102, 102) is None
    assert sequencer.process_sequenced_event("x", 103, 103) == [103]
    assert sequencer.process_sequenced_event("x", 102, 102) is None
    assert sequencer.process_sequenced_event("x", 104, 104) == [104]


def test_the_books_of_a_sequencer() -> None:
    sequencer = RustEventSequencer(10, 50)
    for number in (1, 5, 6, 9, 1):
        sequencer.process_sequenced_event("x", number, number)
    assert [sequencer.is_duplicate("a"), sequencer.is_duplicate("a"), sequencer.next_seq()] == [False, True, 1]
    stats = sequencer.get_sequence_stats()
    gaps = [{"start": 2, "end": 4, "size": 3}, {"start": 7, "end": 8, "size": 2}]
    assert stats == {
        "current_sequence": 1,
        "duplicate_count": 1,
        "out_of_order_count": 3,
        "dropped_count": 1,
        "topics": {"x": {"expected": 2, "buffered": 3, "gaps": gaps, "buffered_sequences": [5, 6, 9]}},
        "total_topics": 1,
        "total_buffered": 3,
        "seen_ids_count": 1,
    }
    buffers = sequencer.get_buffer_stats()
    topic = buffers["topics"]["x"]
    assert 0 <= topic.pop("oldest_buffered_age") < 60
    assert topic == {"expected_sequence": 2, "buffered_count": 3, "buffered_sequences": [5, 6, 9], "gap_size": 3}
    assert (buffers["total_topics"], buffers["total_buffered"]) == (1, 3)


def test_a_cleanup_keeps_fresh_events_and_a_reset_keeps_numbers_and_ids() -> None:
    sequencer = RustEventSequencer()
    for topic in ("x", "y"):
        for number in (1, 3):
            sequencer.process_sequenced_event(topic, number, number)
    sequencer.next_seq()
    sequencer.is_duplicate("a")
    sequencer.cleanup()
    assert sequencer.get_buffer_stats()["total_buffered"] == 2
    sequencer.reset_sequence("x")
    assert list(sequencer.get_sequence_stats()["topics"]) == ["y"]
    sequencer.reset_sequence()
    assert sequencer.get_sequence_stats()["total_buffered"] == 0
    assert sequencer.get_current_sequence() == 1
    assert sequencer.is_duplicate("a")


def test_a_sequencer_refuses_values_out_of_bounds() -> None:
    with pytest.raises(ValueError, match="sequence is -1"):
        RustEventSequencer().process_sequenced_event("x", -1, None)
    with pytest.raises(ValueError, match="max_out_of_order is 1000000"):
        RustEventSequencer(max_out_of_order=1_000_000)


def test_the_highest_priority_is_first_and_among_equals_the_earliest() -> None:
    queue = RustPriorityQueue(4)
    pushed = [queue.push(*item) for item in ((5, "a"), (10, "b"), (5, "c"), (-3, "d"), (99, "e"))]
    assert pushed == [True, True, True, True, False]
    assert (queue.len(), queue.is_full()) == (4, True)
    assert (queue.pop(), queue.drain(2), queue.drain(9), queue.pop()) == ("b", ["a", "c"], ["d"], None)
    assert queue.push(1, "x")
    queue.clear()
    assert (queue.len(), queue.pop()) == (0, None)
    with pytest.raises(ValueError, match="max_count is -1"):
        queue.drain(-1)


def test_a_priority_is_rounded_to_the_nearest_level_and_up_on_ties() -> None:
    queue = RustPriorityMessageQueue(100, 100)
    for priority in range(-1, 13):
        assert queue.enqueue(priority, priority)
    levels = {message: level for level, message in queue.dequeue_batch()}
    nearest = {priority: min(LEVELS, key=lambda level: abs(level - priority)) for priority in range(-1, 13)}
    assert levels == nearest
    assert [levels[tie] for tie in (9, 4, 2)] == [10, 5, 3]


def test_a_full_queue_drops_the_oldest_of_the_least_urgent_droppable_level() -> None:
    queue = RustPriorityMessageQueue(5, 10)
    for message, priority in (("a", 5), ("b", 3), ("c", 1), ("d", 1), ("e", 10)):
        queue.enqueue(message, priority)
    assert all(queue.enqueue(message, 10) for message in "fghi")
    assert [message for _, message in queue.dequeue_batch()] == ["e", "f", "g", "h", "i"]
    assert queue.get_stats()["dropped_by_priority"] == {10: 0, 8: 0, 5: 1, 3: 1, 1: 2}


def test_a_less_urgent_new_message_still_replaces_a_normal_one() -> None:
    queue = RustPriorityMessageQueue(2)
    assert [queue.enqueue(message) for message in "ab"] == [True, True]
    assert queue.enqueue("c", 1)
    assert queue.dequeue_batch() == [(5, "b"), (1, "c")]


def test_a_new_message_is_dropped_when_only_urgent_ones_are_queued() -> None:
    queue = RustPriorityMessageQueue(2)
    assert [queue.enqueue("a", 10), queue.enqueue("b", 8)] == [True, True]
    assert [queue.enqueue("c", 10), queue.enqueue("d", 1)] == [False, False]
    assert queue.get_stats()["total_dropped"] == 2
    assert queue.size == 2


def test_the_books_of_a_queue() -> None:
    queue = RustPriorityMessageQueue(5, 2)
    for message, priority in enumerate((1, 5, 10, 5)):
        queue.enqueue(message, priority)
    assert queue.get_stats()["backpressure"] is False
    queue.enqueue(4, 8)
    stats = queue.get_stats()
    assert 0 <= stats.pop("oldest_message_age") < 60
    assert stats == {
        "size": 5,
        "capacity": 5,
        "utilization_percent": 100.0,
        "priority_distribution": {10: 1, 8: 1, 5: 2, 3: 0, 1: 1},
        "priority_queue_depths": {
            "priority_10_depth": 1,
            "priority_8_depth": 1,
            "priority_5_depth": 2,
            "priority_3_depth": 0,
            "priority_1_depth": 1,
        },
        "dropped_by_priority": dict.fromkeys(LEVELS, 0),
        "total_dropped": 0,
        "backpressure": True,
        "processing_rate": 0.0,
    }
    assert queue.dequeue_batch() == [(10, 2), (8, 4)]
    queue.clear()
    assert queue.size == 0
    assert queue.get_stats()["oldest_message_age"] is None


def test_queues_refuse_invalid_sizes() -> None:
    for make in (lambda: RustPriorityQueue(10**8), lambda: RustPriorityMessageQueue(10**8)):
        with pytest.raises(ValueError, match="max_size is 100000000"):
            make()
    with pytest.raises(ValueError, match="max_size is -1"):
        RustPriorityQueue(-1)
    with pytest.raises(ValueError, match="batch_size is 0"):
        RustPriorityMessageQueue(1, 0)
    assert not RustPriorityQueue(0).push(1, "a")


class Holder:
    """An object that can be part of a cycle and have weak references."""

    referenced: Any = None


def test_a_container_that_contains_itself_is_collected() -> None:
    watched = []
    for container in (RustPriorityQueue(1), RustPriorityMessageQueue(1), RustEventSequencer()):
        holder = Holder()
        holder.referenced = container
        if isinstance(container, RustPriorityQueue):
            container.push(1, holder)
        elif isinstance(container, RustPriorityMessageQueue):
            container.enqueue(holder)
        else:
            container.process_sequenced_event("x", 1, None)
            container.process_sequenced_event("x", 3, holder)
        watched.append(weakref.ref(holder))
        del holder, container
    gc.collect()
    assert [reference() for reference in watched] == [None, None, None]
