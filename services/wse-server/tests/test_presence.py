"""Presence in topics, through Python and real sockets."""

import time
from collections.abc import Callable

import jwt
import pytest
from harness import Running, message
from websockets.sync.client import ClientConnection

from bench_server import AUDIENCE, ISSUER, SECRET


@pytest.fixture
def running(start: Callable[..., Running]) -> Running:
    return start(presence_enabled=True, presence_max_data_size=100, presence_max_members=2)


def ready(running: Running, user: str) -> tuple[ClientConnection, str]:
    """A connection of this user, and its id."""
    claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 60}
    connection = running.connect(cookie=f"access_token={jwt.encode(claims, SECRET, 'HS256')}")
    return connection, str(message(connection)["p"]["details"]["connection_id"])


def news(connection: ClientConnection) -> tuple[str, str, object]:
    """Type, user and data of the next presence message."""
    it = message(connection)
    return it["t"], it["p"]["user_id"], it["p"]["data"]


def test_subscribers_and_the_application_are_notified_of_joins_and_leaves(running: Running) -> None:
    server = running.server
    watcher, watcher_id = ready(running, "watcher")
    server.subscribe_connection(watcher_id, ["room"])
    first, first_id = ready(running, "ann")
    assert server.subscribe_connection(first_id, ["room", "hall"], {"status": "here"}) == ["room", "hall"]
    assert news(watcher) == ("presence_join", "ann", {"status": "here"})
    # A user gets its own presence messages too, as in the reference.
    assert news(first) == news(first) == ("presence_join", "ann", {"status": "here"})
    second, second_id = ready(running, "ann")
    server.subscribe_connection(second_id, ["room"], {"status": "here"})
    assert server.presence("room") == {"ann": {"data": {"status": "here"}, "connections": 2}}
    assert server.presence_stats("room") == {"num_users": 1, "num_connections": 2}
    assert server.update_presence(second_id, {"status": "away"})
    assert news(watcher) == ("presence_update", "ann", {"status": "away"})
    second.close()
    first.close()
    assert news(watcher) == ("presence_leave", "ann", {"status": "away"})
    running.wait(lambda: server.presence("hall") == {})
    events = [event for event in running.drain(9) if event[0].startswith("presence")]
    joined = [
        ("presence_join", None, {"topic": topic, "user_id": "ann", "data": {"status": "here"}})
        for topic in ("room", "hall")
    ]
    leave_events = [
        ("presence_leave", None, {"topic": "hall", "user_id": "ann", "data": {"status": "here"}}),
        ("presence_leave", None, {"topic": "room", "user_id": "ann", "data": {"status": "away"}}),
    ]
    assert events[:2] == joined
    assert sorted(events[2:], key=str) == sorted(leave_events, key=str)


def test_unsubscribing_leaves(running: Running) -> None:
    _, connection_id = ready(running, "ann")
    running.server.subscribe_connection(connection_id, ["a", "b"], {})
    running.server.unsubscribe_connection(connection_id, ["a"])
    assert (running.server.presence("a"), set(running.server.presence("b"))) == ({}, {"ann"})
    snapshot = running.server.health_snapshot()
    assert (snapshot["presence_enabled"], snapshot["presence_topics"], snapshot["presence_total_users"]) == (True, 1, 1)


def test_data_and_members_are_bounded(running: Running, start: Callable[..., Running]) -> None:
    users = [ready(running, f"user {number}")[1] for number in range(3)]
    for connection_id in users:
        running.server.subscribe_connection(connection_id, ["a"], {})
    assert running.server.presence_stats("a") == {"num_users": 2, "num_connections": 2}
    assert running.server.get_topic_subscriber_count("a") == 3
    for data, why in (({"x": "x" * 100}, "108 bytes"), ({"x": float("nan")}, "not JSON compliant")):
        with pytest.raises(ValueError, match=why):
            running.server.subscribe_connection(users[0], ["b"], data)
        with pytest.raises(ValueError, match=why):
            running.server.update_presence(users[0], data)
    assert running.server.get_topic_subscriber_count("b") == 0
    assert not running.server.update_presence("nobody", {})
    plain = start()
    with pytest.raises(RuntimeError, match="presence_enabled"):
        plain.server.subscribe_connection(ready(plain, "ann")[1], ["a"], {})
    assert plain.server.presence("a") == {}
