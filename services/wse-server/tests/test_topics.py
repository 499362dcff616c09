"""Topics, patterns, queue groups and their rules, through Python and real sockets."""

import json
import time
from collections.abc import Callable

import jwt
import pytest
from harness import Running, message
from websockets.sync.client import ClientConnection
from wse_server import RustWSEServer

from bench_server import AUDIENCE, ISSUER, SECRET

END = '{"c":"U","t":"end"}'


def ready(running: Running, **options: str) -> tuple[ClientConnection, str]:
    """A connection and its id."""
    connection = running.connect(**options)
    details = message(connection)["p"]["details"]
    return connection, str(details["connection_id"])


def received(running: Running, *connections: ClientConnection) -> list[list[int]]:
    """The numbers that each connection has received so far."""
    running.server.broadcast_all(END)
    numbers: list[list[int]] = []
    for connection in connections:
        numbers.append([])
        while (text := connection.recv(10)) != END:
            numbers[-1].append(json.loads(text)["p"])
    return numbers


def test_a_connection_gets_what_is_published_to_its_topics(running: Running) -> None:
    (first, first_id), (second, second_id) = ready(running), ready(running)
    assert running.server.subscribe_connection(first_id, ["prices.es", "prices.*"]) == ["prices.es", "prices.*"]
    assert running.server.subscribe_connection(second_id, ["prices.nq"]) == ["prices.nq"]
    for number, topic in enumerate(["prices.es", "prices.nq", "orders"]):
        running.server.broadcast(topic, f'{{"t":"tick","p":{number}}}')
    running.server.broadcast_local("prices.es", '{"t":"tick","p":9}')
    assert received(running, first, second) == [[0, 1, 9], [1]]
    assert running.server.get_topic_subscriber_count("prices.es") == 1
    assert running.server.unsubscribe_connection(first_id) == 2
    assert running.server.unsubscribe_connection(second_id, ["prices.nq", "other"]) == 1
    running.server.broadcast("prices.nq", '{"t":"tick","p":5}')
    assert received(running, first, second) == [[], []]
    running.wait(lambda: running.server.publish_backlog() == 0)


def test_a_queue_group_shares_its_messages(running: Running) -> None:
    members = [ready(running) for _ in range(3)]
    for _, connection_id in members:
        assert running.server.subscribe_connection(connection_id, ["jobs"], queue_group="workers") == ["jobs"]
    assert running.server.get_queue_group_info("jobs") == {"workers": 3}
    for number in range(30):
        running.server.broadcast("jobs", f'{{"t":"job","p":{number}}}')
    shares = received(running, *(connection for connection, _ in members))
    assert [len(share) for share in shares] == [10, 10, 10]
    assert sorted(number for share in shares for number in share) == list(range(30))
    assert running.server.get_queue_group_info("nothing") == {}


def test_rules_are_set_by_token_or_by_call(running: Running) -> None:
    claims = {"sub": "u", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 60}
    token = jwt.encode(claims | {"wse_topics": {"allow": ["public.*"], "deny": ["public.x"]}}, SECRET, "HS256")
    _, connection_id = ready(running, cookie=f"access_token={token}")
    subscribe = running.server.subscribe_connection
    assert subscribe(connection_id, ["public.a", "public.x", "*", "other"]) == ["public.a"]
    assert running.server.set_topic_acl(connection_id, deny=["public.*"])
    assert running.server.get_topic_subscriber_count("public.a") == 0
    assert subscribe(connection_id, ["public.a", "other"]) == ["other"]
    assert not running.server.set_topic_acl("nobody")


def test_invalid_calls_are_refused_and_change_nothing(start: Callable[..., Running]) -> None:
    running = start(max_subscriptions_per_connection=4)
    _, connection_id = ready(running)
    for topics in ([""], ["a\nb"], ["x" * 513]):
        with pytest.raises(ValueError, match="topic"):
            running.server.subscribe_connection(connection_id, ["fine", *topics])
    with pytest.raises(RuntimeError, match="4 subscriptions"):
        running.server.subscribe_connection(connection_id, list("abcde"))
    with pytest.raises(ValueError, match="1024"):
        running.server.set_topic_acl(connection_id, allow=["x"] * 1025)
    assert running.server.get_topic_subscriber_count("fine") == 0
    assert running.server.subscribe_connection("nobody", ["a"]) == []
    with pytest.raises(ValueError, match="max_publish_backlog_bytes"):
        RustWSEServer("127.0.0.1", 0, max_publish_backlog_bytes=-1)


def test_a_server_that_never_started_has_no_subscribers() -> None:
    server = RustWSEServer("127.0.0.1", 0)
    server.broadcast("a", "{}")
    assert (server.publish_backlog(), server.get_topic_subscriber_count("a")) == (0, 0)
    assert server.subscribe_connection("x", ["a"]) == []
