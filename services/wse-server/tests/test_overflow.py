"""A slow application: backpressure loses nothing, and with `drop` every loss is counted."""

from collections.abc import Callable

from harness import Running, Sender

COUNT = 20_000


def sequence_numbers(running: Running, until: Callable[[int], bool]) -> list[int]:
    """The sequence numbers that reach the application, until `until` holds for their count."""
    numbers: list[int] = []
    while not until(len(numbers)):
        numbers += [data["p"]["seq"] for kind, _, data in running.server.drain_inbound(100, 200) if kind == "msg"]
    return numbers


def test_backpressure_loses_nothing_and_keeps_the_order(start: Callable[..., Running]) -> None:
    running = start(max_inbound_queue_size=16)
    with running.connect() as connection:
        sender = Sender(connection, COUNT)
        assert sequence_numbers(running, lambda counted: counted == COUNT) == list(range(COUNT))
        sender.join()
    assert running.server.inbound_dropped_count() == 0


def test_drop_mode_counts_what_it_drops(start: Callable[..., Running]) -> None:
    running = start(max_inbound_queue_size=16, inbound_overflow="drop")
    with running.connect() as connection:
        sender = Sender(connection, COUNT)
        # Without draining, the client finishes when the server has read all messages and dropped most of them.
        sender.join()
        dropped = running.server.inbound_dropped_count
        running.wait(lambda: dropped() + running.server.inbound_queue_depth() == COUNT + 1)
        assert dropped() > 0
        numbers = sequence_numbers(running, lambda counted: counted + dropped() == COUNT)
    assert numbers == sorted(set(numbers))
    assert (
        f'service_messages_dropped_total{{reason="inbound_overflow"}} {dropped()}'
        in running.server.prometheus_metrics()
    )


def test_discard_hands_nothing_over_and_counts_everything(start: Callable[..., Running]) -> None:
    running = start(delivery="discard")
    with running.connect() as connection:
        Sender(connection, 100).join()
        line = 'service_messages_dropped_total{reason="discarded"} 100'
        running.wait(lambda: line in running.server.prometheus_metrics())
    assert [kind for kind, _, _ in running.server.drain_inbound(1000, 100) if kind == "msg"] == []
