"""Servers connected by a real Redis: publications of one reach subscribers of the other, once and in order."""

import json
import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from harness import DEADLINE_SECONDS, Running, message, wait_until
from redis_server import PASSWORD, RedisServer, command, read_reply
from websockets.sync.client import ClientConnection


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def connected(start: Callable[..., Running], redis: RedisServer, **options: Any) -> Running:
    """A server that is connected to Redis."""
    running = start(**options)
    running.server.connect_redis(redis.url)
    running.wait(running.server.redis_connected)
    return running


def subscriber(running: Running, *topics: str) -> ClientConnection:
    """A client that is subscribed to these topics; the server's subscription in Redis follows asynchronously."""
    connection = running.connect()
    connection_id = message(connection)["p"]["details"]["connection_id"]
    assert running.server.subscribe_connection(connection_id, list(topics)) == list(topics)
    return connection


def interest(redis: RedisServer) -> int:
    """The number of channels and patterns with subscriptions in Redis."""
    return len(redis.execute("PUBSUB", "CHANNELS")) + int(redis.execute("PUBSUB", "NUMPAT"))


def tick(number: int) -> str:
    return json.dumps({"c": "U", "t": "tick", "p": {"seq": number}}, separators=(",", ":"))


def numbers(connection: ClientConnection, count: int) -> list[int]:
    return [message(connection)["p"]["seq"] for _ in range(count)]


def links(running: Running) -> dict[str, Any]:
    url = f"http://127.0.0.1:{running.server.metrics_port}/stats/links"
    with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as response:
        stats: dict[str, Any] = json.load(response)["redis"]
    return stats


def assert_balanced(stats: dict[str, Any]) -> None:
    assert stats["published"] == stats["sent"] + sum(stats["dropped"].values()) + stats["queued"], stats


def test_subscribers_of_both_servers_get_publications_once_and_in_order(
    start: Callable[..., Running], redis: RedisServer
) -> None:
    one, other = (connected(start, redis, metrics_port=0) for _ in range(2))
    local_client = subscriber(one, "a.b", "a.*")
    remote_client = subscriber(other, "a.b", "a.?", "*")
    wait_until(lambda: interest(redis) == 4)
    assert one.server.get_topic_interest("a.b") == 1
    one.server.broadcast_many("a.b", [tick(number) for number in range(1000)])
    for number in range(1000, 1500):
        one.server.broadcast("a.b", tick(number))
    one.server.broadcast("end", tick(-1))
    other.server.broadcast("a.c", tick(-2))
    # The order between publications of the two servers is not defined.
    assert [number for number in numbers(remote_client, 1502) if number != -2] == [*range(1500), -1]
    assert [number for number in numbers(local_client, 1501) if number != -2] == [*range(1500)]
    wait_until(lambda: links(one)["queued"] == 0)
    stats = links(one)
    assert_balanced(stats)
    assert stats["sent"] == 1501
    assert links(other)["delivered"] == 1501
    assert links(other)["lost"] == 0
    assert links(other)["duplicates"] > 0
    assert one.server.publish_backlog() == 0


def test_a_foreign_publication_in_redis_reaches_subscribers_unchanged(
    start: Callable[..., Running], redis: RedisServer
) -> None:
    running = connected(start, redis)
    client = subscriber(running, "news.*", "news.es")
    wait_until(lambda: interest(redis) == 2)
    for text in ('{"t":"plain","p":1}', '{"t":"plain","p":1}', '{"t":"plain","p":{"é":2}}'):
        assert redis.execute("PUBLISH", "wse:news.es", text) == 2
        assert client.recv(DEADLINE_SECONDS) == text
    assert redis.execute("PUBLISH", "wse:news.es", b"\xff") == 2
    assert redis.execute("PUBLISH", "wse:news.es", b"\x01\xffheader") == 2
    assert redis.execute("PUBLISH", "other:news.es", "not for us") == 0
    assert redis.execute("PUBLISH", "wse:news.es", '{"t":"end"}') == 2
    assert client.recv(DEADLINE_SECONDS) == '{"t":"end"}'


def test_publications_can_be_read_by_other_redis_clients(start: Callable[..., Running], redis: RedisServer) -> None:
    running = connected(start, redis)
    received: list[bytes] = []
    ready = threading.Event()

    def listen() -> None:
        with socket.create_connection(("127.0.0.1", redis.port), timeout=DEADLINE_SECONDS) as connection:
            lines = connection.makefile("rwb")
            lines.write(command("SUBSCRIBE", "wse:out"))
            lines.flush()
            read_reply(lines)
            ready.set()
            received.append(read_reply(lines)[2])

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert ready.wait(DEADLINE_SECONDS)
    running.server.broadcast("out", tick(7))
    listener.join(DEADLINE_SECONDS)
    # The format of docs/PROTOCOL.md: a mark, the kind (a number follows), the origin, the number.
    assert received[0][:2] == b"\x01\x01"
    assert received[0][18:] == tick(7).encode()


def test_ended_subscriptions_are_removed_in_redis(start: Callable[..., Running], redis: RedisServer) -> None:
    running = connected(start, redis)
    client = subscriber(running, "a", "b[1]\\", "c*", "c**")
    wait_until(lambda: interest(redis) == 3)
    assert sorted(redis.execute("PUBSUB", "CHANNELS")) == [b"wse:a", b"wse:b[1]\\"]
    for connection_id in running.server.get_connections():
        assert running.server.unsubscribe_connection(connection_id, ["a", "c*"]) == 2
    wait_until(lambda: redis.execute("PUBSUB", "CHANNELS") == [b"wse:b[1]\\"])
    assert redis.execute("PUBSUB", "NUMPAT") == 1
    client.close()
    wait_until(lambda: interest(redis) == 0)


def test_publications_without_redis_become_dead_letters_and_can_be_replayed(
    start: Callable[..., Running], redis: RedisServer
) -> None:
    one, other = (connected(start, redis, metrics_port=0) for _ in range(2))
    local_client, remote_client = subscriber(one, "a"), subscriber(other, "a")
    wait_until(lambda: one.server.get_topic_interest("a") == 1)
    redis.kill()
    one.wait(lambda: not one.server.redis_connected())
    for number in range(50):
        one.server.broadcast("a", tick(number))
    # Subscribers of the same server don't wait for Redis.
    assert numbers(local_client, 50) == list(range(50))
    wait_until(lambda: one.server.health_snapshot()["redis_dlq_size"] == 50)
    entries = one.server.get_dlq_entries()
    assert [entry["channel"] for entry in entries] == ["wse:a"] * 50
    assert [json.loads(entry["payload"])["p"]["seq"] for entry in entries] == list(range(50))
    assert all("reached" in entry["error"] for entry in entries)
    assert one.server.get_dlq_entries() == []
    with pytest.raises(RuntimeError, match="no connection"):
        one.server.replay_dlq("a")
    assert redis.start()
    one.wait(one.server.redis_connected)
    other.wait(other.server.redis_connected)
    wait_until(lambda: redis.execute("LLEN", "wse:dlq:a") == 50)
    assert 0 < redis.execute("TTL", "wse:dlq:a") <= 7 * 24 * 3600
    wait_until(lambda: one.server.get_topic_interest("a") == 1)
    assert other.server.replay_dlq("a", 20) == 20
    # Replayed messages are removed from the list after the call; another instance could find them until then.
    wait_until(lambda: redis.execute("LLEN", "wse:dlq:a") == 30)
    assert one.server.replay_dlq("a") == 30
    assert numbers(remote_client, 50) == list(range(50))
    wait_until(lambda: redis.execute("LLEN", "wse:dlq:a") == 0)
    assert one.server.replay_dlq("a") == 0
    one.server.broadcast("a", tick(50))
    assert numbers(local_client, 1) == [50]
    stats = links(one)
    assert_balanced(stats)
    assert stats["dropped"]["unreachable"] == 50
    assert stats["reconnects"] == 2


def test_a_password_is_used_and_never_printed(
    start: Callable[..., Running], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    redis = RedisServer(tmp_path, password=PASSWORD)
    try:
        running = start(metrics_port=0)
        running.server.connect_redis(f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{redis.port}/2")
        running.wait(running.server.redis_connected)
        wrong = start(metrics_port=0)
        wrong.server.connect_redis(f"redis://:{quote(PASSWORD, safe='')}2@127.0.0.1:{redis.port}")
        wait_until(
            lambda: re.search(rb"cmdstat_auth:.*failed_calls=[1-9]", redis.execute("INFO", "commandstats")) is not None
        )
        assert not wrong.server.redis_connected()
        printed = repr(wrong.server.health_snapshot()) + wrong.server.prometheus_metrics() + repr(links(wrong))
        wrong.server.stop()
    finally:
        redis.kill()
    printed += "".join(capfd.readouterr())
    assert "s3cret" not in printed


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("hunter2", "can't be read"),
        ("http://:hunter2@localhost", "another scheme"),
        ("rediss://:hunter2@localhost", "TLS"),
        ("redis://:hunter2@localhost/first", "database"),
        ("redis://:hunter2@localhost:port", "can't be read"),
        ("redis://localhost?password=hunter2", "a query or a fragment"),
    ],
)
def test_an_invalid_url_is_refused_without_printing_its_secrets(running: Running, url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        running.server.connect_redis(url)
    assert "hunter2" not in str(raised.value)
    assert running.server.redis_connected() is False


def test_a_server_has_one_redis_and_only_while_it_runs(start: Callable[..., Running], redis: RedisServer) -> None:
    stopped = start(running=False)
    with pytest.raises(RuntimeError, match="never started"):
        stopped.server.connect_redis(redis.url)
    assert stopped.server.redis_connected() is False
    assert stopped.server.get_dlq_entries() == []
    running = connected(start, redis)
    with pytest.raises(RuntimeError, match="already"):
        running.server.connect_redis(redis.url)
    running.server.stop()
    assert running.server.redis_connected() is False
    wait_until(lambda: len(redis.execute("CLIENT", "LIST").splitlines()) == 1)
    with pytest.raises(RuntimeError, match="stopped"):
        running.server.replay_dlq("a")
    # After a restart the server has no Redis.
    running.server.start()
    with pytest.raises(RuntimeError, match="never connected"):
        running.server.replay_dlq("a")
    running.server.connect_redis(redis.url)
    running.wait(running.server.redis_connected)


def test_the_health_snapshot_and_the_metrics_include_redis(start: Callable[..., Running], redis: RedisServer) -> None:
    alone = start()
    snapshot = alone.server.health_snapshot()
    assert snapshot["redis_connected"] is False
    assert "wse_redis" not in alone.server.prometheus_metrics()
    one, other = (connected(start, redis) for _ in range(2))
    remote_client = subscriber(other, "a")
    wait_until(lambda: interest(redis) == 1)
    one.server.broadcast_many("a", [tick(0), tick(1), tick(2)])
    one.server.broadcast("nobody", tick(3))
    assert numbers(remote_client, 3) == [0, 1, 2]
    wait_until(lambda: one.server.health_snapshot()["redis_messages_dropped"] == 1)
    snapshot = one.server.health_snapshot()
    assert {name: value for name, value in snapshot.items() if name.startswith("redis_")} == {
        "redis_connected": True,
        "redis_messages_received": 0,
        "redis_messages_published": 4,
        "redis_messages_delivered": 0,
        "redis_messages_dropped": 1,
        "redis_messages_lost": 0,
        "redis_publish_errors": 0,
        "redis_reconnect_count": 0,
        "redis_dlq_size": 0,
    }
    wait_until(lambda: other.server.health_snapshot()["redis_messages_delivered"] == 3)
    text = other.server.prometheus_metrics()
    for line in ("published_total 0", "received_total 3", "delivered_total 3", "dropped_total 0", "lost_total 0"):
        assert f"\nwse_redis_{line}\n" in text
    assert "\nwse_redis_reconnects_total 0\n" in text
    assert "\nwse_redis_connected 1\n" in text


def test_stamps_go_with_their_messages(start: Callable[..., Running], redis: RedisServer) -> None:
    one = connected(start, redis, recovery_enabled=True)
    other = connected(start, redis)
    remote_client = subscriber(other, "a")
    wait_until(lambda: interest(redis) == 1)
    one.server.broadcast_many("a", [tick(0), tick(1)])
    stamps = [message(remote_client) for _ in range(2)]
    assert [(stamp["tp"], stamp["o"]) for stamp in stamps] == [("a", 0), ("a", 1)]
    assert stamps[0]["e"] == stamps[1]["e"]
