"""The contract of the compiled module: what it takes, what it gives, what it raises.

The names and defaults of `RustWSEServer` are those of PyPI `wse-server` 2.5.1, so that its applications run
unchanged. Arguments after the first of these are keywords only, so that no
position means something else here.

Differences that an application can see, all of them deliberate:

- `start()` raises when the address cannot be bound, and binds before it returns.
- Inbound `M:` and `C:` messages are decoded. MessagePack keeps bytes as `bytes`, NaN as `float('nan')` and map keys
  as they are.
- `send()` and its kin say whether the connection was known, `send_event()` with 0.
- A full inbound queue stops reading from sockets (`inbound_overflow="backpressure"`) instead of losing messages.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, final

__version__: str

JwtAlgorithm: TypeAlias = Literal["HS256", "RS256", "ES256"]
"""How a token is signed."""

ApplicationCounts: TypeAlias = tuple[int, int, int]
"""Delivered messages, the sum of their sequence numbers modulo 2**64, and how many carried none."""

Kind: TypeAlias = Literal[
    "connect", "auth_connect", "msg", "raw", "bin", "disconnect", "presence_join", "presence_leave"
]
"""What an entry is, in the words of the reference's `drain_inbound()`."""

Event: TypeAlias = tuple[Kind, Any, Any]
"""A kind, a connection id and the data: `connect` a cookie header, `auth_connect` a user id, `msg` a decoded object,
`raw` a text that is no JSON object, `bin` bytes, `disconnect` None. `presence_join` and `presence_leave` have None for
an id, and a dict of `topic`, `user_id` and `data`."""

@final
class Message:
    """One entry of a batch: a view that copies nothing until it is asked.

    It keeps the whole batch alive, and with it the memory that the server reads into: take what you need and let go
    of it. `memoryview(message)` and every other reader of buffers see its data without a copy.
    """

    @property
    def kind(self) -> Kind:
        """What it is."""
    @property
    def connection(self) -> int:
        """The connection's key: an integer that the server never gives to another connection."""
    @property
    def connection_id(self) -> str:
        """The connection's id, as the client was told; one object per connection, not one per message.

        Raises:
            LookupError: the server no longer knows the connection.
        """
    @property
    def type(self) -> str | None:
        """The message's top-level `t` (else `type`) where it is a string."""
    @property
    def data(self) -> bytes:
        """The payload, copied: JSON text without its prefix, MessagePack without its prefix, or what came."""
    def json(self) -> Any:
        """The payload as Python objects, parsed now; JSON and MessagePack alike.

        Top-level `type` and `payload` are renamed to `t` and `p` as in `drain_inbound()`, but integers below 2**64
        stay exact.

        Raises:
            ValueError: it is neither JSON nor MessagePack; the server counts a `msg` that fails here as malformed.
        """
    def __len__(self) -> int:
        """The payload's size in bytes."""
    def __buffer__(self, flags: int, /) -> memoryview:
        """The payload, read-only."""
    def __release_buffer__(self, buffer: memoryview, /) -> None:
        """Let go of a view."""

@final
class MessageBatch:
    """Messages on memory that they share with the server.

    The batch holds that memory until it and all its views are dropped. A server out of memory for messages stops
    reading from its sockets, so an application that keeps batches slows its clients down and loses nothing.
    """

    def __len__(self) -> int:
        """How many entries, connections and disconnections included."""
    def __iter__(self) -> Iterator[Message]:
        """Views of all entries in the order of their arrival."""
    def __getitem__(self, index: int, /) -> Message:
        """The view of one entry; negative indexes count from the end.

        Raises:
            IndexError: there is no such entry.
        """
    def tuples(self) -> list[tuple[int, str | None, bytes]]:
        """All messages as (connection key, type, data).

        Connections and disconnections are left out: see `events()`. Equal neighbours share their key and type objects.
        """
    def runs(self) -> list[tuple[int, str | None, list[bytes]]]:
        """All messages in runs: neighbours of one connection and one type, as (connection key, type, data of each).

        Cheaper than `tuples()` for a flood, where a connection's messages come in long runs.
        """
    def packed(self) -> list[tuple[int, str | None, bytes, bytes]]:
        """All messages in runs, as (connection key, type, data of all back to back, where each ends in it).

        The ends are unsigned 32-bit integers in native order: `memoryview(ends).cast("I")`, NumPy's `frombuffer`, or,
        after a leading 0, the offsets of an Arrow binary array. The fastest way to read every message of a flood,
        because no object is made for any of them. Neighbouring runs may be of one connection and type.
        """
    def events(self) -> list[tuple[Kind, int, str, str]]:
        """Connections and disconnections only, as (kind, connection key, connection id, detail).

        The detail of `connect` is a cookie header, of `auth_connect` a user id, of `disconnect` "".

        A connection's first event comes before its messages, its last one after them; handle `connect` and
        `auth_connect` before and `disconnect` after the messages of the same batch.
        """

@final
class RustWSEServer:
    """A WebSocket server of the WSE protocol.

    Nothing runs until `start()`. Methods may be called from any thread; those that wait let other threads run and
    wake for signals.
    """

    def __new__(
        cls,
        host: str,
        port: int,
        max_connections: int = 1000,
        jwt_secret: bytes | None = None,
        jwt_issuer: str | None = None,
        jwt_audience: str | None = None,
        jwt_cookie_name: str | None = None,
        jwt_previous_secret: bytes | None = None,
        jwt_key_id: str | None = None,
        jwt_algorithm: JwtAlgorithm | None = None,
        jwt_private_key: bytes | None = None,
        *,
        jwt_keys: str | bytes | None = None,
        max_inbound_queue_size: int = 131072,
        max_message_size: int = 1048576,
        ping_interval: int = 25,
        idle_timeout: int = 60,
        max_outbound_queue_bytes: int = 16777216,
        max_outbound_bytes: int = 268435456,
        max_partial_bytes: int = 67108864,
        rate_limit_capacity: float = 100000.0,
        rate_limit_refill: float = 10000.0,
        handshake_timeout: int = 10,
        max_handshakes: int = 4096,
        max_handshakes_per_peer: int = 0,
        inbound_overflow: Literal["backpressure", "drop"] = "backpressure",
        delivery: Literal["queue", "discard", "echo"] = "queue",
        share_port: bool = False,
        shards: int | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        max_subscriptions_per_connection: int = 0,
        max_publish_backlog_bytes: int = 0,
        send_buffer_bytes: int = 131_072,
        recovery_enabled: bool = False,
        recovery_buffer_size: int = 128,
        recovery_ttl: int = 300,
        recovery_max_messages: int = 500,
        recovery_memory_budget: int = 268435456,
        presence_enabled: bool = False,
        presence_max_data_size: int = 4096,
        presence_max_members: int = 0,
    ) -> RustWSEServer:
        """Check and keep the configuration.

        Args:
            host: Address to listen on: an IP address or `localhost`.
            port: TCP port; 0 lets the kernel pick.
            max_connections: Connections beyond it are refused.
            jwt_secret: The secret of HS256, at least 32 bytes; the issuer's public key as PEM for RS256 (2048 bits or
                more) and ES256. Without it and without `jwt_keys` the application authenticates its clients.
            jwt_issuer: Required `iss`.
            jwt_audience: Required `aud`.
            jwt_cookie_name: Cookie that carries the token; None means `access_token`.
            jwt_previous_secret: The one before the last rotation, of the same algorithm: its tokens pass whatever
                `kid` they name.
            jwt_key_id: `kid` that tokens verified with `jwt_secret` must name.
            jwt_algorithm: How they are signed; None means HS256. No token is verified with another algorithm.
            jwt_private_key: Checked to be the other half of `jwt_secret`, then forgotten: a server only verifies.
            jwt_keys: A JSON Web Key Set (RFC 7517) as issuers publish it, beside or instead of `jwt_secret`. A token is
                verified with the key whose `kid` it names and whose algorithm its header gives; one without `kid` with
                those keys that have none. Keys for encryption and for other algorithms are left out.
            max_inbound_queue_size: Messages that may wait for the application.
            max_message_size: Bytes, after decompression.
            ping_interval: Seconds between the server's pings.
            idle_timeout: Seconds without a message after which a connection is closed.
            max_outbound_queue_bytes: Bytes that may wait for one slow receiver; 0 means no limit.
            max_outbound_bytes: Bytes that may wait for all slow receivers together.
            max_partial_bytes: Bytes promised to large messages that are not whole yet; connections beyond it wait.
            rate_limit_capacity: Events that `send_event()` may send to one connection at once, at least 1.
            rate_limit_refill: Events per second that it may send to it from then on.
            handshake_timeout: Seconds that a client may take to send its request.
            max_handshakes: Connections that have not been let in yet: one more, and the oldest of them is closed.
            max_handshakes_per_peer: How many of these one address may have; 0 means no limit, as behind a proxy.
            inbound_overflow: What a full queue does: stop reading, or drop and count.
            delivery: `discard` parses and counts messages, and hands none to the application; `echo` sends each back as
                it came, without a look at what it means.
            share_port: Let other processes of this user listen on the port too: the kernel spreads connections.
            shards: Threads that serve connections; None means one per CPU that the process may use.
            metrics_port: Port for `/metrics`, `/stats`, `/healthz`, `/readyz`; 0: any port, None: no metrics.
            metrics_host: Address for it.
            max_subscriptions_per_connection: Topics and patterns that a connection may have; 0 means no limit.
            max_publish_backlog_bytes: Bytes of publications that may be in memory, because not every listener has taken
                them, before `broadcast()` and `broadcast_all()` wait. So nothing is lost and the slowest listener sets
                the pace; one that takes nothing for two pings is closed. 0 means that they never wait, and what a slow
                listener has no room for (`max_outbound_queue_bytes`) is dropped and counted.
            send_buffer_bytes: What is on its way to a client at once, at most; a share of it where thousands are there.
                Clients that are far away get so much per round trip.
            recovery_enabled: Stamp what is published to topics (`tp`, `e`, `o`) and keep the last of it for clients
                that come back.
            recovery_buffer_size: Messages kept per topic: at least 16, rounded up to a power of two.
            recovery_ttl: Seconds for which a topic is remembered that nobody publishes to.
            recovery_max_messages: Messages that one recovery replays at most.
            recovery_memory_budget: Bytes kept for all topics; beyond it, those used longest ago are given up.
            presence_enabled: Keep account of who is in a topic.
            presence_max_data_size: Bytes of JSON that a user may say about itself.
            presence_max_members: Users that a topic may have; 0 means no limit.

        Raises:
            ValueError: a value is out of range, `ping_interval` is not below `idle_timeout`, or a key is too
                weak, of another kind than `jwt_algorithm`, or none.
        """
    def start(self) -> None:
        """Bind and serve, in threads of the server's own.

        Raises:
            OSError: an address could not be bound.
            RuntimeError: it is running already.
        """
    def stop(self) -> None:
        """Close every connection with 1001, flush for up to two seconds, and join all threads. Twice is once.

        What was received and not yet drained can still be drained afterwards.
        """
    def is_running(self) -> bool:
        """Whether it serves."""
    def drain(self, close_code: int = 4300, close_reason: str = "", timeout: int = 30) -> None:
        """Let nobody in any more, and tell all clients to go, behind what waits for them. Returns at once.

        Further clients are answered 503, and `/readyz` too. Call `stop()` when all have gone, or when you have waited
        long enough.

        Args:
            close_code: What the close frame says: 1000, 1001, 1008, 1011, 1012, 1013, or 3000 to 4999.
            close_reason: 123 bytes at most.
            timeout: Seconds after which a client that has not gone is cut off.

        Raises:
            ValueError: a code or a reason that no close frame can carry. Nothing has happened then.
            RuntimeError: the server was never started.
        """
    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None before `start()`."""
    @property
    def port(self) -> int:
        """The port it listens on; the configured one before `start()`."""
    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics, if there are any; the configured one before `start()`."""
    @property
    def cluster_port(self) -> int | None:
        """The cluster port, as bound; `None` without one."""
    def set_callbacks(
        self,
        on_connect: Callable[[str, str], object],
        on_message: Callable[[str, Any], object],
        on_disconnect: Callable[[str], object],
    ) -> None:
        """Have one thread of the server's call these, in order, instead of draining.

        Args:
            on_connect: Gets the connection id and the cookie header, or the user id where the server checked a token.
            on_message: Gets the connection id and a decoded object, a `str` that is no JSON object, or `bytes`.
            on_disconnect: Gets the connection id.

        What a callback raises goes to `sys.unraisablehook`; the next message is handled all the same.

        Raises:
            RuntimeError: the server runs, or drain mode is on.
        """
    def enable_drain_mode(self) -> None:
        """Declare that the application drains. The queue exists without it; this only rules out callbacks.

        Raises:
            RuntimeError: callbacks are set.
        """
    def drain_inbound(self, max_count: int = 256, timeout_ms: int = 50) -> list[Event]:
        """Wait for the first event, then take what is ready, decoded, in the reference's shape.

        Integers beyond 64 signed bits become floats, as there. A malformed message comes as `raw` and is counted.

        Raises:
            RuntimeError: callbacks are set, or the server was never started.
        """
    def drain_batch(self, max_count: int = 4096, timeout_ms: int = 50) -> MessageBatch:
        """Wait for the first entry, then take what is ready, undecoded; empty at the timeout or after a stop.

        Raises:
            RuntimeError: callbacks are set, or the server was never started.
        """
    def send(self, connection_id: str, message: str) -> bool:
        """Send a text message. False: no such connection."""
    def send_bytes(self, connection_id: str, message: bytes) -> bool:
        """Send a binary message. False: no such connection."""
    def send_event(self, connection_id: str, event: dict[str, Any], compression_threshold: int = 1024) -> int:
        """Send an event in the connection's own format, as one binary message.

        What is missing in the envelope is added: `id` (a UUID of version 7), `seq` (counted for the whole process),
        `ts` (RFC 3339, milliseconds). `c` always follows from `t`, and `v` is 1. Keys are sorted, at every level.
        Then it is JSON; with `C:` and a zlib stream in front of it where it is longer than the threshold; `M:` and
        MessagePack on a `format=msgpack` connection; `E:` and ciphertext where a key was exchanged (never
        compressed).

        An event whose `id` is a string goes to a connection once, as long as it is among the last 50 000 of all
        connections that had one. More than the rate limit allows are dropped, and the client is told so at most once
        a second; below a fifth of its capacity it is warned as often. `pri` (1, 3, 5, 8, 10; else 5) is the event's
        level: where a client doesn't keep up, higher ones overtake lower ones and the lowest are dropped first.

        `bytes`, `bytearray` and `memoryview` become hexadecimal text; what has `isoformat()` becomes what that says;
        NaN and infinities become null, as JSON has neither; integers beyond 64 signed bits become text; tuples become
        lists, and keys text; half a surrogate pair becomes U+FFFD; anything else becomes its `str()`.

        Args:
            connection_id: Who gets it.
            event: The envelope, as far as the application fills it in.
            compression_threshold: Bytes of JSON beyond which it is compressed; 0 means never.

        Returns:
            The payload's size in bytes; 0 if nothing was sent: no such connection, a duplicate, or one too many.

        Raises:
            ValueError: it nests more than 128 deep, or the threshold is negative. Whatever `isoformat()` and `str()`
                raise is raised too. The event was not sent then, and may come again.
        """
    def broadcast_all(self, message: str) -> None:
        """Send a text message to every connection."""
    def broadcast_all_bytes(self, message: bytes) -> None:
        """Send a binary message to every connection."""
    def subscribe_connection(
        self,
        connection_id: str,
        topics: list[str],
        presence_data: dict[str, Any] | None = None,
        queue_group: str | None = None,
    ) -> list[str]:
        """Send a connection what is published to these topics from now on.

        Args:
            connection_id: Whose subscriptions.
            topics: Names, or patterns: `*` stands for any run of characters, dots included, `?` for any one. A message
                is sent once to a connection, however many of its topics fit.
            presence_data: Say that the connection's user is there, and this about it: see `presence()`.
            queue_group: Share the messages with the other members of this group: each goes to one of them, in turn, and
                to the next if that one is gone or takes no more. A topic that the connection has already changes to the
                new way.

        Returns:
            Those of the topics that its rules permit; none if there is no such connection.

        Raises:
            ValueError: a topic is empty, longer than 512 bytes, or holds control characters; the data is no JSON or
                more than `presence_max_data_size`.
            RuntimeError: it would have more than `max_subscriptions_per_connection`, or presence is off. Nothing has
                changed then.
        """
    def subscribe_with_recovery(
        self,
        connection_id: str,
        topics: list[str],
        recover: bool = False,
        epoch: str | None = None,
        offset: int | None = None,
    ) -> dict[str, Any]:
        """Subscribe a connection, and send it what it missed, before anything new.

        Args:
            connection_id: Whose subscriptions.
            topics: As for `subscribe_connection()`. Patterns have no past of their own.
            recover: Whether to send what came after `offset` in `epoch`, the client's last stamp; in each topic.
            epoch: 8 hexadecimal digits, the `e` of a stamp.
            offset: The `o` of a stamp; -1 before the first message.

        Returns:
            `recovered`, whether all topics were, and by topic `epoch` and `offset` (where it stands now),
            `recoverable`, `recovered` and `count` (messages sent). A topic is not recovered if its epoch is another
            one, or if the client missed more than is kept or than `recovery_max_messages`: then it starts anew from
            where the topic is.

        Raises:
            ValueError: as for `subscribe_connection()`, or an epoch that is none.
            RuntimeError: as for `subscribe_connection()`; topics before the one too many stay subscribed.
        """
    def unsubscribe_connection(self, connection_id: str, topics: list[str] | None = None) -> int:
        """End these subscriptions, or all of them. Returns how many that were."""
    def set_topic_acl(self, connection_id: str, allow: list[str] | None = None, deny: list[str] | None = None) -> bool:
        """Set what a connection may subscribe to, in place of what its token said (`wse_topics`).

        A denial wins; without `allow` everything else is allowed. Rules are names or patterns. A pattern may be
        subscribed to if everything that it stands for may. Subscriptions that break the new rules end.

        Returns:
            Whether there is such a connection.

        Raises:
            ValueError: there are more than 1024 rules, or one that no topic could fit.
        """
    def broadcast(self, topic: str, message: str) -> None:
        """Send a text message to the topic's subscribers, those of connected servers too.

        Waits first, if `max_publish_backlog_bytes` says so.
        """
    def broadcast_many(self, topic: str, messages: list[str]) -> None:
        """Send text messages to the topic's subscribers, each as `broadcast()` does, for less than each would cost.

        What is published together is written together.
        """
    def broadcast_all_many(self, messages: list[str]) -> None:
        """Send text messages to every connection, each as `broadcast_all()` does, for less than each would cost."""
    def broadcast_local(self, topic: str, message: str) -> None:
        """Send a text message to the topic's subscribers of this server alone."""
    def get_topic_interest(self, topic: str) -> int:
        """How many other servers want what is published to the topic, as far as is known. May wait for an answer.

        Redis knows of those that have subscribed to it by its name, and not of those with a pattern that it fits.
        """
    def connect_cluster(
        self,
        peers: list[str],
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        cluster_port: int | None = None,
        seeds: list[str] | None = None,
        cluster_addr: str | None = None,
    ) -> None:
        """Become part of a cluster: publications go to every server whose clients want them, and come from there.

        Returns when the cluster port is bound; peers are dialled in the background, now and whenever a link is gone.
        Once in a server's life, after `start()`.

        Args:
            peers: Cluster ports of the others, `HOST:PORT`; names are looked up each time they are dialled.
            tls_cert: This server's certificate with its chain, PEM. Both ends of a link verify each other. All three
                files or none; without any, `WSE_CLUSTER_TLS_CERT`, `_KEY` and `_CA` name them.
            tls_key: Its key.
            tls_ca: The certificates of the authorities that sign the servers'.
            cluster_port: The port to be reached at, on the server's `host`; 0 lets the kernel pick. Without it this
                server only dials. It is a port of its own: cluster links are not accepted on the WebSocket port.
            seeds: Instead of `peers`: some servers that know the others.
            cluster_addr: Where others reach the cluster port, to be passed on; a host alone, or port 0, stands for the
                bound port. Who gives one also dials those that it hears of.

        Raises:
            RuntimeError: it is connected already, not started, or seeds come without `cluster_addr`.
            ValueError: an address that is none, files that are refused or incomplete, or nobody to dial and no port.
            OSError: the port can't be bound.
        """
    def cluster_connected(self) -> bool:
        """Whether there is a link with any other server."""
    def cluster_peers_count(self) -> int:
        """How many servers there is a link with."""
    def cluster_info(self) -> list[dict[str, Any]]:
        """Each of these: `address`, `instance_id`, `capabilities` (bits) and `connected_at` (milliseconds)."""
    def reload_cluster_tls(
        self, cert: str | os.PathLike[str], key: str | os.PathLike[str], ca: str | os.PathLike[str]
    ) -> None:
        """Secure new links with other files. Links that there are stay.

        Raises:
            RuntimeError: there is no cluster, or it is a plain one.
            ValueError: the files are refused; the old ones stay.
        """
    def get_cluster_dlq_entries(self) -> list[dict[str, str]]:
        """Take the last publications (1000 at most) that a peer didn't get.

        Each has `topic`, `payload`, `peer_addr` and `error`: `overflow`, `gone`, `too_big` or `stopped`.
        """
    def connect_redis(self, url: str) -> None:
        """Publish to topics of other servers too, and get what they publish, through Redis Pub/Sub.

        A topic is the channel `wse:<topic>`. What others publish there in plain text comes as it is; what this server
        publishes it does not get twice. Returns at once: two connections are made, and made again, in the background. A
        publication that finds none for 0.3 seconds is given up: see `get_dlq_entries()`.

        Args:
            url: `redis://[[user]:password@]host[:port][/database]`, with `%XX` for what is special in a password.

        Raises:
            ValueError: it is no such URL, or one with TLS (`rediss://`). The message holds nothing of it.
            RuntimeError: the server is not running, or has a Redis already.
        """
    def redis_connected(self) -> bool:
        """Whether there is a Redis, and both connections to it, now."""
    def get_dlq_entries(self) -> list[dict[str, str]]:
        """The last 1000 publications that Redis did not get, each once: `channel`, `payload` and `error`.

        As soon as there is a connection they are put into Redis as well, for `replay_dlq()` of any server: into the
        list `wse:dlq:<topic>`, of 1000 at most, for seven days.
        """
    def replay_dlq(self, topic: str, limit: int = 1000) -> int:
        """Publish the topic's dead letters again that Redis keeps, of whatever server, the oldest first.

        They go to all servers but the one that published them first: its own subscribers had them. Redis then keeps
        them no longer.

        Returns:
            How many.

        Raises:
            RuntimeError: there is no Redis, or no answer from it. If the connection broke, some may come again.
        """
    def get_topic_subscriber_count(self, topic: str) -> int:
        """How many connections have this name, or this pattern as it is written; members of queue groups too."""
    def get_queue_group_info(self, topic: str) -> dict[str, int]:
        """The topic's queue groups, each with its number of members."""
    def presence(self, topic: str) -> dict[str, Any]:
        """The users of a topic: `data` and the number of `connections` of each, by user id.

        The user is that of the connection's token; without tokens it is the connection itself. It joins with its first
        connection and leaves with its last; both are told to the topic's subscribers (`presence_join`,
        `presence_leave`) and drained.

        Raises:
            RuntimeError: the server was never started.
        """
    def presence_stats(self, topic: str) -> dict[str, int]:
        """`num_users` and `num_connections` of a topic."""
    def update_presence(self, connection_id: str, data: dict[str, Any]) -> bool:
        """Say something else about a connection's user, in all topics where the connection is.

        Subscribers are told with `presence_update` if it is new. Returns whether there is such a connection.

        Raises:
            ValueError: the data is no JSON, or more than `presence_max_data_size`.
            RuntimeError: presence is off.
        """
    def publish_backlog(self) -> int:
        """Bytes of publications, as framed, that are in memory because not every listener has taken them."""
    def disconnect(self, connection_id: str) -> bool:
        """Close a connection. False: no such connection."""
    def get_connection_count(self) -> int:
        """How many connections are open."""
    def get_connections(self) -> list[str]:
        """The ids of all open connections."""
    def inbound_dropped_count(self) -> int:
        """Messages lost to a full queue so far; only `inbound_overflow="drop"` loses any."""
    def inbound_queue_depth(self) -> int:
        """Messages waiting for the application."""
    def health_snapshot(self) -> dict[str, Any]:
        """Counters for a health check, by the reference's names.

        Beside them `connection_quality`: how many connections are `excellent`, `good`, `fair` and `poor`, as
        `get_connection_quality()` judges them. A shard that does not answer within a second is left out of it.
        """
    def get_connection_quality(self, connection_id: str) -> dict[str, Any] | None:
        """How good a connection is; None: no such connection.

        Returns:
            `score`, from 100 down to 0, and `grade`: `excellent` (from 90), `good` (from 70), `fair` (from 40) or
            `poor`. What it is judged by: `sent` and `dropped` (messages to it), `backlog_bytes` (waiting for it),
            `allowance` (the part of `rate_limit_capacity` that is left), `round_trip_ms` and `jitter_ms` (the
            kernel's; None where it doesn't tell). And what it lost for each, in `penalties`: `loss` up to 40 (all of
            them at 10 % dropped), `backlog` up to 25 (at half of `max_outbound_queue_bytes`), `latency` up to 20 (from
            50 ms, all at 500), `pace` up to 10 (below a fifth, all at none), `jitter` up to 5 (from 10 ms, all at 100).

        Raises:
            RuntimeError: the server was never started.
        """
    def prometheus_metrics(self) -> str:
        """The text of `/metrics`."""
    def set_jwt_keys(self, keys: str | bytes) -> None:
        """Verify tokens with the keys of this JSON Web Key Set alone, from the next handshake on.

        This is how keys are rotated without a restart: first a set with the old and the new key, and when the last
        token of the old one has expired, one with the new key. Open connections stay. If the set is refused, the keys
        stay what they were.

        Raises:
            ValueError: it is no set, none of its keys can be used, two have one `kid`, or the server checks no tokens.
            RuntimeError: the server was never started.
        """
    def set_application_stats(
        self,
        totals: Callable[[], ApplicationCounts] | None,
        connections: Callable[[], Mapping[str, ApplicationCounts]] | None,
    ) -> None:
        """Give `/stats` and `/stats/connections` the application's own books.

        Args:
            totals: Called for every reading of `/stats`.
            connections: Called for every reading of `/stats/connections`; by connection id.

        They run on a thread of the server's; what they raise goes to `sys.unraisablehook` and that reading is left out.
        """

# What applications need beside the server. Names, defaults and behaviour are those of PyPI `wse-server` 2.5.1; what
# differs is said where it does. A value that can't be used raises ValueError, one of another type TypeError.

@final
class RustCircuitBreaker:
    """Whether something that keeps failing is worth another call.

    Closed, calls go through. After `failure_threshold` failures in a row it is open, and they don't. After
    `reset_timeout` seconds it is half open: `success_threshold` calls go through, and if all of them succeed it is
    closed; if one fails, it is open for as long again.
    """

    def __new__(
        cls, failure_threshold: int = 5, reset_timeout: float = 60.0, success_threshold: int = 3
    ) -> RustCircuitBreaker:
        """A closed one.

        Raises:
            ValueError: a threshold is not from 1 to 2**32 - 1, or the time is negative or no number.
        """
    def allow(self) -> bool:
        """Whether to call now. Whoever is told so says how it ended."""
    def record_success(self) -> None:
        """A call succeeded."""
    def record_failure(self) -> None:
        """A call failed."""
    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """What it thinks now."""

@final
class RustTokenBucket:
    """Tokens that refill with time, up to a capacity: how often something may happen."""

    def __new__(cls, capacity: float, refill_rate: float, initial_tokens: float | None = None) -> RustTokenBucket:
        """A bucket of `capacity` that gets `refill_rate` tokens a second; full unless `initial_tokens` says less.

        Raises:
            ValueError: a number is negative or no number at all (here and in `acquire()`; the reference takes them).
        """
    def acquire(self, tokens: float) -> bool:
        """Take so many tokens, if there are as many; otherwise none."""
    @property
    def tokens(self) -> float:
        """How many there are now."""
    def reset(self) -> None:
        """Fill it."""

@final
class RustSequencer:
    """Sequence numbers from 1, and a memory of the latest `window_size` ids."""

    def __new__(cls, window_size: int) -> RustSequencer:
        """A sequencer that remembers so many ids.

        Raises:
            ValueError: the window holds nothing, or more than ten million.
        """
    def next_seq(self) -> int:
        """The next number."""
    def get_current_seq(self) -> int:
        """The number that was given last; 0 if none was."""
    def is_duplicate(self, event_id: str) -> bool:
        """Whether the id is remembered. If not, it is from now on, in the place of the oldest where there is no room.

        Raises:
            ValueError: it has more than 1024 bytes.
        """
    def cleanup(self, max_age_secs: float) -> None:
        """Forget ids that came longer ago."""
    def seen_count(self) -> int:
        """How many ids are remembered."""

@final
class RustEventSequencer:
    """Numbered events of topics, put back in order."""

    def __new__(cls, window_size: int = 10000, max_out_of_order: int = 100) -> RustEventSequencer:
        """A sequencer that remembers `window_size` ids and lets an event be `max_out_of_order` ahead of its turn.

        Raises:
            ValueError: one of them is out of bounds.
        """
    def next_seq(self) -> int:
        """The next number for what goes out, from 1."""
    def get_current_sequence(self) -> int:
        """The number that was given last; 0 if none was."""
    def is_duplicate(self, event_id: str) -> bool:
        """As `RustSequencer.is_duplicate()`, counted."""
    def process_sequenced_event(self, topic: str, sequence: int, event: Any) -> list[Any] | None:
        """Take an event, and give those that can be delivered, in order.

        A topic begins with its first event. One whose turn it is comes out with those behind it that waited. One ahead
        waits (None), one too far ahead is delivered and everything before it given up, one behind is dropped (None).

        Raises:
            ValueError: the number is negative, or too many topics (100 000) or waiting events (a million) are followed.
        """
    def cleanup(self) -> None:
        """Drop events that waited for more than five minutes, and forget topics that were idle for an hour."""
    def reset_sequence(self, topic: str | None = None) -> None:
        """Forget one topic, or all. Numbers and ids stay."""
    def get_buffer_stats(self) -> dict[str, Any]:
        """What waits, by topic."""
    def get_sequence_stats(self) -> dict[str, Any]:
        """What went wrong so far, and how far topics are.

        `gaps` are all missing numbers below the highest that waits (the reference leaves out the first of them).
        """

@final
class RustPriorityQueue:
    """The highest number first; of equals the one that came first."""

    def __new__(cls, max_size: int) -> RustPriorityQueue:
        """A queue for so many messages, ten million at most."""
    def push(self, priority: int, message: Any) -> bool:
        """Add a message. False: it is full."""
    def pop(self) -> Any | None:
        """Take out the most urgent message; None if there is none."""
    def drain(self, max_count: int) -> list[Any]:
        """Take out at most so many, the most urgent first."""
    def len(self) -> int:
        """How many wait."""
    def is_full(self) -> bool:
        """Whether no further message is taken."""
    def clear(self) -> None:
        """Drop all."""

@final
class RustPriorityMessageQueue:
    """Five levels (10, 8, 5, 3, 1), each first in, first out; the least urgent give way when it is full."""

    def __new__(cls, max_size: int = 1000, batch_size: int = 10) -> RustPriorityMessageQueue:
        """A queue for `max_size` messages that come out `batch_size` at a time."""
    def enqueue(self, message: Any, priority: int = 5) -> bool:
        """Add a message at the level nearest to `priority`; of two as near, the more urgent.

        When full, the oldest of level 1, else 3, else 5 is dropped for it, even if it is less urgent. False: only
        levels 10 and 8 wait, so this one is dropped.
        """
    def dequeue_batch(self) -> list[tuple[int, Any]]:
        """Take out the next batch, the most urgent first, each with its level."""
    @property
    def size(self) -> int:
        """How many wait."""
    def clear(self) -> None:
        """Drop all. What was counted stays."""
    def get_stats(self) -> dict[str, Any]:
        """Depths and drops by level, `backpressure` above 80 %, the age of the oldest message in seconds."""

@final
class RustCompressionManager:
    """zlib and MessagePack, with statistics of the former. Any thread may use it."""

    def __new__(cls, threshold: int = 1024, compression_level: int = 6) -> RustCompressionManager:
        """What is longer than `threshold` bytes is worth compressing, at level 1 (the fastest) to 9 (the smallest)."""
    def should_compress(self, data: bytes) -> bool:
        """Whether it is longer than the threshold."""
    def compress(self, data: bytes, level: int | None = None) -> bytes:
        """As `rust_compress()`, at the manager's level unless another is given."""
    def decompress(self, data: bytes) -> bytes:
        """As `rust_decompress()`."""
    def pack_msgpack(self, data: dict[Any, Any]) -> bytes:
        """MessagePack. What it has no kind for becomes text, times in ISO 8601.

        Raises:
            ValueError: an integer is beyond 64 bits (the reference writes text), or it is nested more than 64 deep.
        """
    def unpack_msgpack(self, data: bytes) -> Any:
        """The value of MessagePack; extensions are lists of their type and their bytes.

        Raises:
            ValueError: it is not exactly one value, nested at most 64 deep (the reference raises RuntimeError, and
                ignores what is behind the value).
        """
    def pack_event(self, event: dict[Any, Any], use_msgpack: bool = True) -> bytes:
        """MessagePack, or JSON: there bytes become hexadecimal text, what is no number null, and keys text."""
    def unpack_event(self, data: bytes, is_msgpack: bool = True) -> Any:
        """The value of MessagePack or, where it is none, of JSON.

        Raises:
            ValueError: it is neither (the reference gives a dict with `_decode_error` for bytes that are no JSON).
        """
    def get_stats(self) -> dict[str, Any]:
        """Streams made and read, failures of both, and bytes saved."""
    def reset_stats(self) -> None:
        """Start counting again."""

def rust_jwt_encode(
    claims: dict[str, Any], secret: bytes, algorithm: JwtAlgorithm = "HS256", key_id: str | None = None
) -> str:
    """A signed token.

    Args:
        claims: What it says.
        secret: The secret of HS256, at least 32 bytes; a private key as PEM for RS256 and ES256.
        algorithm: How it is signed.
        key_id: Its header's `kid`.

    Raises:
        ValueError: the algorithm is unknown, the key too weak or of another kind (the reference: RuntimeError), or the
            token would be longer than the 8192 bytes that are read.
    """

def rust_jwt_decode(
    token: str,
    secret: bytes,
    algorithm: JwtAlgorithm = "HS256",
    issuer: str | None = None,
    audience: str | None = None,
    previous_secret: bytes | None = None,
    key_id: str | None = None,
) -> dict[str, Any] | None:
    """The claims of a token; None if it isn't good.

    `exp` is required and `nbf` respected, with 30 seconds of leeway. `issuer` and `audience` are required where they
    are given (the reference lets tokens without them pass). `key_id` must be named by tokens signed with `secret`, not
    by those signed with `previous_secret`.

    Raises:
        ValueError: the algorithm is unknown, or a key too weak or of another kind (the reference gives None).
    """

def rust_hmac_sha256(key: bytes, data: bytes) -> bytes:
    """The 32 bytes of HMAC-SHA256."""

def rust_sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""

def rust_sign_message(payload_json: str, secret: bytes) -> str:
    """HMAC-SHA256, in hexadecimal, of the hexadecimal SHA-256 of the text."""

def rust_transform_event(event: dict[str, Any], sequence: int, event_type_map: dict[str, str]) -> dict[str, Any]:
    """The envelope of an application's event.

    An event that has `v`, `t`, `p`, `id` and `ts` is one: it is given back itself, with `seq` added if it had none.
    Otherwise a new dict is made, with values that JSON can hold: bytes as text, ids and times as text, enumerations as
    their values, tuples and sets as lists, objects as dicts of their attributes, keys as text.

    Raises:
        ValueError: it is nested more than 64 deep, or contains itself.
    """

def rust_match_event(event: dict[str, Any], criteria: dict[str, Any]) -> bool:
    """Whether an event meets criteria: `{"p.price": {"$gt": 5}, "t": "trade"}`.

    Operators: `$eq $ne $gt $lt $gte $lte $in $nin $exists $regex $contains $startswith $endswith`; `$and` and `$or`
    take lists of criteria. An unknown operator never holds. Values without an order are neither greater nor less (the
    reference raises). Patterns match from the start of a text, in linear time, without look-around or references back.

    Raises:
        ValueError: a pattern can't be used, or the criteria are nested more than 32 deep.
        TypeError: an operator got an operand of another type than it takes, or a key is no text.
    """

def rust_compress(data: bytes, level: int) -> bytes:
    """The zlib stream, at level 1 (the fastest) to 9 (the smallest).

    Raises:
        ValueError: there is no such level.
    """

def rust_decompress(data: bytes) -> bytes:
    """What a zlib stream inflates to.

    Raises:
        ValueError: it is not exactly one whole stream, or inflates to more than 10 MiB (the reference raises
            RuntimeError, and gives what it got of a torn stream).
    """

def rust_should_compress(data: bytes, threshold: int) -> bool:
    """Whether it is longer than the threshold."""

def rust_aes_gcm_encrypt(key: bytes, plaintext: bytes) -> bytes:
    """A 12-byte random IV, the ciphertext of AES-256-GCM and its 16-byte tag. The key has 32 bytes."""

def rust_aes_gcm_decrypt(key: bytes, data: bytes) -> bytes:
    """What was sealed with the key.

    Raises:
        ValueError: it was sealed with another key, changed, or too short (the reference: RuntimeError for a forgery).
    """

def rust_ecdh_generate_keypair() -> tuple[bytes, bytes]:
    """A new private key of P-256 (32 bytes) and its public one (65 bytes, uncompressed)."""

def rust_ecdh_derive_shared_secret(private_key: bytes, peer_public_key: bytes) -> bytes:
    """The 32-byte key that both ends derive: HKDF-SHA256, without salt, of what ECDH gives.

    Raises:
        ValueError: one of them is no key of P-256 in that form.
    """
