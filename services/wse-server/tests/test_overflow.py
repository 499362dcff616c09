"""A slow application: waiting loses nothing, every loss of the other policies is counted, and bystanders are served."""

from collections.abc import Callable

import pytest
from harness import Running, Sender, message

COUNT = 20_000


def sequence_numbers(running: Running, until: Callable[[int], bool]) -> list[int]:
    """The sequence numbers that reach the application, until `until` holds for their count."""
    numbers: list[int] = []
    while not until(len(numbers)):
        numbers += [data["p"]["seq"] for kind, _, data in running.server.drain_inbound(100, 200) if kind == "msg"]
    return numbers


PING = '{"t":"ping","p":{"timestamp":1}}'


@pytest.mark.parametrize("policy", [{}, {"inbound_overflow": "wait"}, {"inbound_overflow": "backpressure"}])
def test_waiting_loses_nothing_and_keeps_the_order(start: Callable[..., Running], policy: dict[str, str]) -> None:
    running = start(max_inbound_queue_size=16, **policy)
    with running.connect() as connection:
        sender = Sender(connection, COUNT)
        assert sequence_numbers(running, lambda counted: counted == COUNT) == list(range(COUNT))
        sender.join()
    assert running.server.inbound_dropped_count() == 0


@pytest.mark.parametrize("policy", ["drop", "drop_newest", "drop_oldest"])
def test_dropping_counts_what_it_drops(start: Callable[..., Running], policy: str) -> None:
    running = start(max_inbound_queue_size=16, inbound_overflow=policy)
    with running.connect() as connection:
        sender = Sender(connection, COUNT)
        # Without draining, the client finishes when the server has read all messages and dropped most of them.
        sender.join()
        dropped = running.server.inbound_dropped_count
        running.wait(lambda: dropped() + running.server.inbound_queue_depth() == COUNT + 1)
        assert dropped() > 0
        numbers = sequence_numbers(running, lambda counted: counted + dropped() == COUNT)
    assert numbers == sorted(set(numbers))
    # The one end of the flood or the other is what is left.
    assert (COUNT - 1 if policy == "drop_oldest" else 0) in numbers
    assert (
        f'service_messages_dropped_total{{reason="inbound_overflow"}} {dropped()}'
        in running.server.prometheus_metrics()
    )


def test_a_bystander_is_answered_and_heard_while_a_flooder_waits(start: Callable[..., Running]) -> None:
    running = start(max_inbound_per_connection=32, shards=1)
    with running.connect() as flooder, running.connect() as bystander:
        sender = Sender(flooder, COUNT, padding_bytes=1000)
        running.wait(lambda: running.server.inbound_queue_depth() >= 34)
        assert message(bystander)["t"] == "server_ready"
        for number in range(10):
            bystander.send(f'{{"t":"y","p":{{"seq":{number}}}}}')
            bystander.send(PING)
            assert message(bystander)["t"] == "PONG"
        running.wait(lambda: running.server.inbound_queue_depth() == 44)
        events = running.drain(44)
        assert [data["p"]["seq"] for kind, _, data in events if kind == "msg" and data["t"] == "y"] == list(range(10))
        sequence_numbers(running, lambda counted: counted == COUNT - 32)
        sender.join()
    assert running.server.inbound_dropped_count() == 0


def test_a_connection_beyond_its_share_is_disconnected_if_it_is_to_be(start: Callable[..., Running]) -> None:
    running = start(max_inbound_per_connection=32, inbound_overflow="disconnect")
    with running.connect() as connection:
        Sender(connection, 33).join()
        line = 'service_messages_dropped_total{reason="inbound_overflow"} 1'
        running.wait(lambda: line in running.server.prometheus_metrics())
        running.wait(lambda: running.server.get_connection_count() == 0)


def test_a_rate_limit_loses_nothing(start: Callable[..., Running]) -> None:
    running = start(inbound_rate_limit_capacity=10.0, inbound_rate_limit_refill=20.0)
    with running.connect() as connection:
        Sender(connection, 40).join()
        assert sequence_numbers(running, lambda counted: counted == 40) == list(range(40))
    assert "service_connections_parked_total 0" not in running.server.prometheus_metrics()


def test_discard_hands_nothing_over_and_counts_everything(start: Callable[..., Running]) -> None:
    running = start(delivery="discard")
    with running.connect() as connection:
        Sender(connection, 100).join()
        line = 'service_messages_dropped_total{reason="discarded"} 100'
        running.wait(lambda: line in running.server.prometheus_metrics())
    assert [kind for kind, _, _ in running.server.drain_inbound(1000, 100) if kind == "msg"] == []
