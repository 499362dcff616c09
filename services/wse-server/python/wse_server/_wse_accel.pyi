"""The interface of the compiled module: arguments, return values and errors.

The names and defaults of `RustWSEServer` are those of PyPI `wse-server` 2.5.1 (the reference), so that its applications
run unchanged. Additional arguments are keyword-only, so that no position has another meaning here.

Deliberate differences that an application can observe:

- `start()` raises when the address cannot be bound, and binds before it returns.
- Inbound `M:` and `C:` messages are decoded. MessagePack keeps bytes as `bytes`, NaN as `float('nan')` and map keys
  as they are.
- `send()` and `send_bytes()` return whether the connection exists; `send_event()` returns 0 if not.
- When the inbound queue is full, the server stops reading from sockets instead of losing messages
  (`inbound_overflow="wait"`).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, final

__version__: str

JwtAlgorithm: TypeAlias = Literal["HS256", "RS256", "ES256"]
"""The algorithm that signs a token."""

ApplicationCounts: TypeAlias = tuple[int, int, int]
"""Number of delivered messages, sum of their sequence numbers modulo 2**64, number of messages without one."""

Kind: TypeAlias = Literal[
    "connect", "auth_connect", "msg", "raw", "bin", "disconnect", "presence_join", "presence_leave"
]
"""The kind of an entry, with the names of the reference's `drain_inbound()`."""

Event: TypeAlias = tuple[Kind, Any, Any]
"""Kind, connection id and data. The data of `connect` is the cookie header, of `auth_connect` a user id, of `msg` a
decoded object, of `raw` a text that is not a JSON object, of `bin` bytes, of `disconnect` None. `presence_join` and
`presence_leave` have None as id, and a dict with `topic`, `user_id` and `data`."""

@final
class Message:
    """One entry of a batch: a view that copies data only on access.

    It keeps the whole batch alive, and with it the memory into which the server reads: copy what you need and drop the
    view. `memoryview(message)` and other users of the buffer protocol read the data without a copy.
    """

    @property
    def kind(self) -> Kind:
        """The kind of the entry: connection, disconnection or message."""
    @property
    def connection(self) -> int:
        """The connection's key: an integer that is never reused for another connection of the server."""
    @property
    def connection_id(self) -> str:
        """The connection's id, as sent to the client. All messages of a connection share one string object.

        Raises:
            LookupError: the server doesn't have the connection any more.
        """
    @property
    def type(self) -> str | None:
        """The message's top-level `t` (else `type`) if it is a string."""
    @property
    def data(self) -> bytes:
        """A copy of the payload: JSON text or MessagePack without its prefix, or the message as received."""
    def json(self) -> Any:
        """Parses the payload (JSON or MessagePack) to Python objects, on each call.

        Top-level `type` and `payload` are renamed to `t` and `p` as in `drain_inbound()`, but integers below 2**64
        stay exact.

        Raises:
            ValueError: the payload is neither JSON nor MessagePack; the server counts such a `msg` as malformed.
        """
    def __len__(self) -> int:
        """The size of the payload in bytes."""
    def __buffer__(self, flags: int, /) -> memoryview:
        """A read-only view of the payload."""
    def __release_buffer__(self, buffer: memoryview, /) -> None:
        """Releases a view of the payload."""

@final
class MessageBatch:
    """Messages in memory that is shared with the server.

    The batch holds that memory until it and all its views are dropped. When the memory for messages is used up, the
    server stops reading from sockets, so an application that keeps batches slows its clients down but loses nothing.
    """

    def __len__(self) -> int:
        """The number of entries, including connections and disconnections."""
    def __iter__(self) -> Iterator[Message]:
        """Iterates over views of all entries, in order of arrival."""
    def __getitem__(self, index: int, /) -> Message:
        """Returns the view of one entry; negative indexes count from the end.

        Raises:
            IndexError: the index is out of range.
        """
    def tuples(self) -> list[tuple[int, str | None, bytes]]:
        """Returns all messages as (connection key, type, data).

        Connections and disconnections are left out, see `events()`. Adjacent messages with the same key and type share
        these objects.
        """
    def runs(self) -> list[tuple[int, str | None, list[bytes]]]:
        """Returns all messages in runs (adjacent ones of one connection and type), as (connection key, type, payloads).

        Cheaper than `tuples()` for a flood, where a connection's messages come in long runs.
        """
    def packed(self) -> list[tuple[int, str | None, bytes, bytes]]:
        """Returns all messages in runs, as (connection key, type, concatenated data, end offsets).

        The ends are unsigned 32-bit integers in native byte order: use `memoryview(ends).cast("I")`, NumPy's
        `frombuffer`, or, after a leading 0, the offsets of an Arrow binary array. The fastest method to read all
        messages of a flood, because no object is created per message. Adjacent runs may have the same connection and
        type.
        """
    def events(self) -> list[tuple[Kind, int, str, str]]:
        """Returns only connections and disconnections, as (kind, connection key, connection id, detail).

        The detail of `connect` is the cookie header, of `auth_connect` the user id, of `disconnect` "".

        A connection's first event precedes its messages, its last one follows them: handle `connect` and `auth_connect`
        before and `disconnect` after the messages of the same batch.
        """

@final
class RustWSEServer:
    """A WebSocket server of the WSE protocol.

    Nothing runs until `start()`. Methods may be called from any thread; those that wait release the GIL and are
    interrupted by signals.

    The threads of a server don't survive `os.fork()`. In a fork of the process that started it, every method that needs
    them raises RuntimeError, and `stop()` and the interpreter's exit leave the server alone.
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
        allowed_origins: list[str] | None = None,
        disconnect_at_expiry: bool = False,
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
        inbound_overflow: Literal["wait", "drop_oldest", "drop_newest", "disconnect", "backpressure", "drop"] = "wait",
        max_inbound_per_connection: int = 0,
        inbound_rate_limit_capacity: float = 0.0,
        inbound_rate_limit_refill: float = 0.0,
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
        """Validates and stores the configuration.

        Args:
            host: Address to listen on: an IP address or `localhost`.
            port: TCP port; 0 lets the kernel choose one.
            max_connections: Most connections; further ones are refused.
            jwt_secret: The secret of HS256, at least 32 bytes; or the issuer's public key as PEM for RS256 (2048 bits
                or more) and ES256. Without it and without `jwt_keys` the application must authenticate clients.
            jwt_issuer: Required `iss`.
            jwt_audience: Required `aud`.
            jwt_cookie_name: Cookie that carries the token; None means `access_token`.
            jwt_previous_secret: The secret before the last rotation, for the same algorithm: its tokens are accepted
                with any `kid`.
            jwt_key_id: `kid` that tokens verified with `jwt_secret` must have.
            jwt_algorithm: Algorithm of tokens; None means HS256. Tokens with another algorithm are rejected.
            jwt_private_key: Only checked to match `jwt_secret`, then discarded: a server only verifies tokens.
            jwt_keys: A JSON Web Key Set (RFC 7517) as issuers publish it, in addition to or instead of `jwt_secret`. A
                token is verified with the key that has its `kid` and the algorithm of its header; a token without `kid`
                with the keys without one. Keys for encryption and for other algorithms are ignored.
            allowed_origins: Origins of web pages, such as `https://app.example`, that may use a user's cookie; pages of
                the server's own host (by the request's `Host`) always may, and `*` allows all. A request with its token
                in the cookie and another `Origin`, or `null`, is answered with 403. Tokens in the `Authorization`
                header, and programs that send no `Origin`, are not affected. Without keys, requests with any cookie are
                checked, but only if origins are given.
            disconnect_at_expiry: Close a connection with 4401 when its token has expired: at its `exp` and the 30
                seconds for which it still admits clients, and at most 5 seconds later. Otherwise a connection stays.
            max_inbound_queue_size: Most messages that wait for the application.
            max_message_size: Largest inbound message in bytes, after decompression.
            ping_interval: Seconds between the server's pings.
            idle_timeout: Seconds without a message after which a connection is closed.
            max_outbound_queue_bytes: Most bytes that wait for one slow receiver; 0 means no limit.
            max_outbound_bytes: Most bytes that wait for all slow receivers together.
            max_partial_bytes: Most bytes reserved for incomplete large messages; connections that need more wait.
            rate_limit_capacity: Events that `send_event()` may send to one connection in a burst, at least 1.
            rate_limit_refill: Events per second that it may send to one connection after a burst.
            handshake_timeout: Seconds within which a client must send its request.
            max_handshakes: Most pending handshakes; when another client connects, the oldest pending one is closed.
            max_handshakes_per_peer: Most pending handshakes of one address; 0 means no limit, as needed behind a proxy.
            inbound_overflow: What happens to a connection whose messages find no room, because it has its share of the
                queue or others have filled it. `wait`: its socket isn't read; nothing is lost. `drop_newest`: its
                further messages are dropped and counted. `drop_oldest`: its oldest queued messages are, up to a
                sixteenth of its share at once. `disconnect`: it is closed with 1013. Pings are answered in any case.
                `backpressure` and `drop` are older names of `wait` and `drop_newest`.
            max_inbound_per_connection: Most messages of one connection that wait for the application, and the same
                part of the bytes; 0 means a sixteenth of `max_inbound_queue_size`, at least 1024. 16 messages of a
                connection fit even if others have filled the queue.
            inbound_rate_limit_capacity: Messages that one connection may send to the application in a burst, at least
                1; 0 for this and the next means no limit. A faster client waits.
            inbound_rate_limit_refill: Messages per second that it may send after a burst.
            delivery: `discard` parses and counts messages, and hands none to the application; `echo` sends each back
                unchanged, without parsing it.
            share_port: Let other processes of the same user listen on the port; the kernel distributes connections.
            shards: Threads that serve connections; None means one per CPU that the process may use.
            metrics_port: Port for `/metrics`, `/stats`, `/healthz`, `/readyz`; 0: any port, None: no metrics.
            metrics_host: Address for the metrics port.
            max_subscriptions_per_connection: Most topics and patterns of a connection; 0 means no limit.
            max_publish_backlog_bytes: Most bytes of publications in memory that some subscriber has not received yet;
                above it `broadcast()` and `broadcast_all()` wait. So nothing is lost and the slowest subscriber sets
                the pace; one that accepts nothing for two pings is closed. With 0 they never wait, and messages that
                don't fit into a slow subscriber's queue (`max_outbound_queue_bytes`) are dropped and counted.
            send_buffer_bytes: Most bytes in flight to one client; with thousands of clients, a share of it. It limits
                how much a distant client receives per round trip.
            recovery_enabled: Stamp publications to topics (`tp`, `e`, `o`) and keep the latest for clients that
                reconnect.
            recovery_buffer_size: Messages kept per topic: at least 16, rounded up to a power of two.
            recovery_ttl: Seconds after the last publication for which a topic's messages are kept.
            recovery_max_messages: Most messages that one recovery replays.
            recovery_memory_budget: Most bytes kept for all topics; above it, the least recently used are dropped.
            presence_enabled: Keep track of the users of each topic.
            presence_max_data_size: Most bytes of JSON of a user's presence data.
            presence_max_members: Most users of a topic; 0 means no limit.

        Raises:
            ValueError: a value is out of range, `ping_interval` is not below `idle_timeout`, an origin is invalid, or a
                key is invalid, too weak, or doesn't fit `jwt_algorithm`; a PEM or JWK is refused as a secret of HS256.
        """
    def start(self) -> None:
        """Binds the ports and serves connections in the server's own threads.

        Raises:
            OSError: an address could not be bound.
            RuntimeError: the server is running already.
        """
    def stop(self) -> None:
        """Closes all connections with 1001, flushes for up to two seconds, and joins all threads. May be called twice.

        Messages that were received but not drained can still be drained afterwards.
        """
    def is_running(self) -> bool:
        """Whether the server is running and has not failed."""
    def is_ready(self) -> bool:
        """Whether clients are admitted and all threads of the server run, as `/readyz` reports."""
    def failure(self) -> str | None:
        """Why the server has failed; None if it hasn't.

        It has failed when a thread that serves connections has ended. `/readyz` and `/healthz` then return 503 with
        this reason, as do requests of new clients, and the drain methods raise RuntimeError until `stop()`. With
        callbacks the RuntimeError goes to `sys.unraisablehook`. A program that doesn't catch it ends with an error, so
        that it is started again; after `stop()` what was received can be drained.
        """
    def drain(self, close_code: int = 4300, close_reason: str = "", timeout: int = 30) -> None:
        """Accepts no further clients, and sends a Close frame to all clients after the messages that wait for them.

        Returns at once. Further clients, and `/readyz`, get status 503. Call `stop()` when all clients have
        disconnected, or when you have waited long enough.

        Args:
            close_code: Code of the Close frame: 1000, 1001, 1008, 1011, 1012, 1013, or 3000 to 4999.
            close_reason: Reason of the Close frame, at most 123 bytes.
            timeout: Seconds after which a client that is still connected is disconnected.

        Raises:
            ValueError: a code or a reason that a Close frame can't carry. Nothing has changed then.
            RuntimeError: the server was never started.
        """
    @property
    def address(self) -> tuple[str, int] | None:
        """The address and port on which the server listens; None before `start()`."""
    @property
    def port(self) -> int:
        """The port on which the server listens; the configured one before `start()`."""
    @property
    def metrics_port(self) -> int | None:
        """The metrics port; None without metrics, the configured one before `start()`."""
    @property
    def cluster_port(self) -> int | None:
        """The bound cluster port; None without one."""
    def set_callbacks(
        self,
        on_connect: Callable[[str, str], object],
        on_message: Callable[[str, Any], object],
        on_disconnect: Callable[[str], object],
    ) -> None:
        """Sets callbacks, which one thread of the server calls in order; they replace draining.

        Args:
            on_connect: Gets the connection id and the cookie header, or the user id if the server verified a token.
            on_message: Gets the connection id and a decoded object, a `str` that is not a JSON object, or `bytes`.
            on_disconnect: Gets the connection id.

        An exception of a callback goes to `sys.unraisablehook`; the next message is handled nevertheless.

        Raises:
            RuntimeError: the server is running, or drain mode is on.
        """
    def enable_drain_mode(self) -> None:
        """Declares that the application drains the queue. The queue exists anyway; this only forbids callbacks.

        Raises:
            RuntimeError: callbacks are set.
        """
    def drain_inbound(self, max_count: int = 256, timeout_ms: int = 50) -> list[Event]:
        """Waits for the first event, then returns all that are ready, decoded, in the reference's format.

        Integers beyond 64 signed bits become floats, as in the reference. A malformed message is returned as `raw` and
        counted.

        Raises:
            RuntimeError: callbacks are set, the server was never started, or it has failed (see `failure()`).
        """
    def drain_batch(self, max_count: int = 4096, timeout_ms: int = 50) -> MessageBatch:
        """Waits for the first entry, then returns all that are ready, undecoded; empty on timeout or after `stop()`.

        Raises:
            RuntimeError: callbacks are set, the server was never started, or it has failed (see `failure()`).
        """
    def send(self, connection_id: str, message: str) -> bool:
        """Sends a text message. Returns False if there is no such connection."""
    def send_bytes(self, connection_id: str, message: bytes) -> bool:
        """Sends a binary message. Returns False if there is no such connection."""
    def send_event(self, connection_id: str, event: dict[str, Any], compression_threshold: int = 1024) -> int:
        """Sends an event in the connection's format, as one binary message.

        Missing fields of the envelope are added: `id` (a UUID of version 7), `seq` (counted for the whole process),
        `ts` (RFC 3339, milliseconds). `c` is always derived from `t`, and `v` is 1. Keys are sorted at every level. The
        event is encoded as JSON; as `C:` and a zlib stream if the JSON is longer than the threshold; as `M:` and
        MessagePack on a `format=msgpack` connection; as `E:` and ciphertext if a key was exchanged (never compressed).

        An event whose `id` is a string is sent to a connection only once, as long as the id is among the last 50 000 of
        all connections. Events above the rate limit are dropped, and the client is notified at most once a second;
        below a fifth of the capacity it is warned, also at most once a second. `pri` (1, 3, 5, 8, 10; else 5) is the
        event's level: for a slow client, higher levels overtake lower ones and the lowest are dropped first.

        `bytes`, `bytearray` and `memoryview` become hexadecimal text; an object with `isoformat()` becomes its result;
        NaN and infinities become null, as JSON has neither; integers beyond 64 signed bits become text; tuples become
        lists, and keys text; half a surrogate pair becomes U+FFFD; anything else becomes its `str()`.

        Args:
            connection_id: The connection that receives it.
            event: The envelope; the application may leave out fields.
            compression_threshold: Bytes of JSON above which it is compressed; 0 means never.

        Returns:
            The payload's size in bytes; 0 if nothing was sent: no such connection, a duplicate, or rate limited.

        Raises:
            ValueError: the event is nested more than 128 deep, or the threshold is negative. Exceptions of
                `isoformat()` and `str()` are raised, too. The event was not sent then, and may be sent again.
        """
    def broadcast_all(self, message: str) -> None:
        """Sends a text message to every connection."""
    def broadcast_all_bytes(self, message: bytes) -> None:
        """Sends a binary message to every connection."""
    def subscribe_connection(
        self,
        connection_id: str,
        topics: list[str],
        presence_data: dict[str, Any] | None = None,
        queue_group: str | None = None,
    ) -> list[str]:
        """Subscribes a connection to topics.

        Args:
            connection_id: The subscribing connection.
            topics: Names or patterns: `*` matches any run of characters, including dots, `?` any one character. A
                message is sent only once to a connection, even if several of its topics match.
            presence_data: Mark the connection's user as present, with this data: see `presence()`.
            queue_group: Share the messages with the other members of this group: each message goes to one of them, in
                turn, and to the next one if that member is gone or accepts no more. A topic that the connection has
                already changes to the new mode.

        Returns:
            The topics that the connection's rules permit; empty if there is no such connection.

        Raises:
            ValueError: a topic is empty, longer than 512 bytes, or has control characters; the data is not JSON or
                larger than `presence_max_data_size`.
            RuntimeError: the connection would exceed `max_subscriptions_per_connection`, or presence is off. Nothing
                has changed then.
        """
    def subscribe_with_recovery(
        self,
        connection_id: str,
        topics: list[str],
        recover: bool = False,
        epoch: str | None = None,
        offset: int | None = None,
    ) -> dict[str, Any]:
        """Subscribes a connection and sends it the messages that it missed, before any new ones.

        Args:
            connection_id: The subscribing connection.
            topics: As for `subscribe_connection()`. Patterns have no history of their own.
            recover: Whether to send, in each topic, the messages after `offset` in `epoch`, the client's last stamp.
            epoch: 8 hexadecimal digits, the `e` of a stamp.
            offset: The `o` of a stamp; -1 before the first message.

        Returns:
            `recovered` (whether all topics were recovered), and by topic `epoch` and `offset` (its current position),
            `recoverable`, `recovered` and `count` (messages sent). A topic is not recovered if its epoch differs, or if
            the client missed more than is kept or more than `recovery_max_messages`: the client then starts at the
            topic's current position.

        Raises:
            ValueError: as for `subscribe_connection()`, or the epoch is invalid.
            RuntimeError: as for `subscribe_connection()`; topics before the one that exceeds the limit stay subscribed.
        """
    def unsubscribe_connection(self, connection_id: str, topics: list[str] | None = None) -> int:
        """Ends these subscriptions, or all of them. Returns their number."""
    def set_topic_acl(self, connection_id: str, allow: list[str] | None = None, deny: list[str] | None = None) -> bool:
        """Sets the topics that a connection may subscribe to, in place of its token's claim `wse_topics`.

        `deny` takes precedence; without `allow` everything else is allowed. Rules are names or patterns. A pattern may
        be subscribed to if every topic that it matches may be. Subscriptions that violate the new rules end.

        Returns:
            Whether there is such a connection.

        Raises:
            ValueError: there are more than 1024 rules, or a rule that no topic can match.
        """
    def broadcast(self, topic: str, message: str) -> None:
        """Sends a text message to the topic's subscribers, including those of connected servers.

        Waits first while the backlog is above `max_publish_backlog_bytes`.
        """
    def broadcast_many(self, topic: str, messages: list[str]) -> None:
        """Sends text messages to the topic's subscribers, like `broadcast()` but at a lower cost per message.

        Messages that are published together are written together.
        """
    def broadcast_all_many(self, messages: list[str]) -> None:
        """Sends text messages to every connection, like `broadcast_all()` but at a lower cost per message."""
    def broadcast_local(self, topic: str, message: str) -> None:
        """Sends a text message only to the topic's subscribers of this server."""
    def get_topic_interest(self, topic: str) -> int:
        """Returns the known number of other servers with subscriptions to the topic. May wait for a reply from Redis.

        Redis counts servers that are subscribed to the topic by name, but not those with a pattern that matches it.
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
        cluster_secret: str | bytes | None = None,
    ) -> None:
        """Joins a cluster: publications are exchanged with all servers whose clients subscribe to them.

        Returns when the cluster port is bound; the server connects to peers in the background, and again whenever a
        link is lost. May be called once in a server's life, after `start()`.

        Args:
            peers: Cluster ports of other servers, `HOST:PORT`; names are resolved before each connection attempt.
            tls_cert: This server's certificate with its chain, PEM. Both sides of a link verify each other. Give all
                three files or none; without them, `WSE_CLUSTER_TLS_CERT`, `_KEY` and `_CA` name the files.
            tls_key: The private key of the certificate.
            tls_ca: The certificates of the authorities that sign the servers' certificates.
            cluster_port: The port for other servers, on the server's `host`; 0 lets the kernel choose one. Without it
                this server only connects to others. Cluster links are not accepted on the WebSocket port.
            seeds: Instead of `peers`: some servers that know the others.
            cluster_addr: The address at which others reach the cluster port, which is passed on to them; a host alone,
                or port 0, stands for the bound port. A server that sets it also connects to servers that it learns of.
            cluster_secret: 32 random bytes or more, the same for all servers: each side of a link proves that it knows
                them. Without it, `WSE_CLUSTER_SECRET` has the secret. Without TLS and without a secret, the cluster
                port must be on a loopback address, and so must all peers. A secret doesn't encrypt links: use TLS for
                that. The PyPI server knows no secret: connect it over TLS or on one machine.

        Raises:
            RuntimeError: the server is connected already or not started, or `seeds` are given without `cluster_addr`.
            ValueError: an invalid address, rejected or incomplete files, neither an address nor a port, a secret of
                less than 32 bytes, or a port or an address beyond this machine without TLS and without a secret.
            OSError: the port can't be bound.
        """
    def cluster_connected(self) -> bool:
        """Whether there is a link to at least one other server."""
    def cluster_peers_count(self) -> int:
        """The number of servers with a link to this one."""
    def cluster_info(self) -> list[dict[str, Any]]:
        """The linked servers: `address`, `instance_id`, `capabilities` (bits) and `connected_at` (milliseconds)."""
    def reload_cluster_tls(
        self, cert: str | os.PathLike[str], key: str | os.PathLike[str], ca: str | os.PathLike[str]
    ) -> None:
        """Uses other files for new links. Existing links are kept.

        Raises:
            RuntimeError: there is no cluster, or it doesn't use TLS.
            ValueError: the files are rejected; the old ones stay in use.
        """
    def get_cluster_dlq_entries(self) -> list[dict[str, str]]:
        """Removes and returns the latest publications (at most 1000) that a peer didn't receive.

        Each has `topic`, `payload`, `peer_addr` and `error`: `overflow`, `gone`, `too_big` or `stopped`.
        """
    def connect_redis(self, url: str) -> None:
        """Exchanges publications with other servers through Redis Pub/Sub.

        A topic is the channel `wse:<topic>`. Plain text that other programs publish there is delivered unchanged; this
        server doesn't receive its own publications again. Returns at once: two connections are opened, and reopened, in
        the background. A publication that finds no connection for 0.3 seconds is given up: see `get_dlq_entries()`.

        Args:
            url: `redis://[[user]:password@]host[:port][/database]`, with `%XX` for special characters in a password.

        Raises:
            ValueError: the URL is invalid, or has TLS (`rediss://`). The message contains no part of it.
            RuntimeError: the server is not running, or is connected to a Redis already.
        """
    def redis_connected(self) -> bool:
        """Whether Redis is configured and both connections to it are open."""
    def get_dlq_entries(self) -> list[dict[str, str]]:
        """Removes and returns the latest 1000 publications that Redis did not receive: `channel`, `payload`, `error`.

        When a connection is available, they are also written to Redis for `replay_dlq()` of any server: to the list
        `wse:dlq:<topic>`, at most 1000, for seven days.
        """
    def replay_dlq(self, topic: str, limit: int = 1000) -> int:
        """Publishes the topic's dead letters in Redis again, from all servers, the oldest first.

        They go to all servers except the one that published them originally, whose subscribers have received them. They
        are then removed from Redis.

        Returns:
            The number of publications.

        Raises:
            RuntimeError: no Redis is connected, or it doesn't answer. If the connection broke, some may be sent twice.
        """
    def get_topic_subscriber_count(self, topic: str) -> int:
        """The number of connections subscribed to exactly this name or pattern, including members of queue groups."""
    def get_queue_group_info(self, topic: str) -> dict[str, int]:
        """The number of members of each queue group of the topic."""
    def presence(self, topic: str) -> dict[str, Any]:
        """The users of a topic by user id: `data` and the number of `connections` of each.

        The user is that of the connection's token; without tokens it is the connection itself. A user joins with its
        first connection and leaves with its last; both are sent to the topic's subscribers (`presence_join`,
        `presence_leave`) and are drained as events.

        Raises:
            RuntimeError: the server was never started.
        """
    def presence_stats(self, topic: str) -> dict[str, int]:
        """The number of users (`num_users`) and of their connections (`num_connections`) in a topic."""
    def update_presence(self, connection_id: str, data: dict[str, Any]) -> bool:
        """Replaces the presence data of a connection's user, in all topics of the connection.

        Subscribers get a `presence_update` if the data has changed. Returns whether there is such a connection.

        Raises:
            ValueError: the data is not JSON, or larger than `presence_max_data_size`.
            RuntimeError: presence is off.
        """
    def publish_backlog(self) -> int:
        """Bytes of publications, with frame headers, in memory that some subscriber has not received yet."""
    def disconnect(self, connection_id: str) -> bool:
        """Closes a connection. Returns False if there is no such connection."""
    def get_connection_count(self) -> int:
        """The number of open connections."""
    def get_connections(self) -> list[str]:
        """The ids of all open connections."""
    def inbound_dropped_count(self) -> int:
        """Messages dropped because they found no room; always 0 with `inbound_overflow="wait"`."""
    def inbound_queue_depth(self) -> int:
        """The number of messages that wait for the application."""
    def health_snapshot(self) -> dict[str, Any]:
        """Counters for a health check, with the reference's names.

        In addition `connection_quality`: the numbers of connections that are `excellent`, `good`, `fair` and `poor` by
        `get_connection_quality()`. A shard that does not answer within a second is left out.
        """
    def get_connection_quality(self, connection_id: str) -> dict[str, Any] | None:
        """Rates the quality of a connection; None if there is no such connection.

        Returns:
            `score`, from 100 down to 0, and `grade`: `excellent` (from 90), `good` (from 70), `fair` (from 40) or
            `poor`. The inputs: `sent` and `dropped` (messages to the connection), `backlog_bytes` (waiting for it),
            `allowance` (the remaining share of `rate_limit_capacity`), `round_trip_ms` and `jitter_ms` (from the
            kernel; None if it doesn't report them). The deductions in `penalties`: `loss` up to 40 (all at 10 %
            dropped), `backlog` up to 25 (all at half of `max_outbound_queue_bytes`), `latency` up to 20 (from 50 ms,
            all at 500), `pace` up to 10 (allowance below a fifth, all at none), `jitter` up to 5 (from 10 ms, all at
            100).

        Raises:
            RuntimeError: the server was never started.
        """
    def prometheus_metrics(self) -> str:
        """The metrics in Prometheus text format, as served at `/metrics`."""
    def set_jwt_keys(self, keys: str | bytes) -> None:
        """Verifies tokens only with the keys of this JSON Web Key Set, from the next handshake on.

        Use it to rotate keys without a restart: first set the old and the new key, and when the last token of the old
        one has expired, only the new key. Open connections are kept. If the set is rejected, the keys don't change.

        Raises:
            ValueError: the set is invalid, none of its keys can be used, two have the same `kid`, or the server doesn't
                verify tokens.
            RuntimeError: the server was never started.
        """
    def set_application_stats(
        self,
        totals: Callable[[], ApplicationCounts] | None,
        connections: Callable[[], Mapping[str, ApplicationCounts]] | None,
    ) -> None:
        """Adds the application's books to `/stats` and `/stats/connections`.

        Args:
            totals: Called for every reading of `/stats`.
            connections: Called for every reading of `/stats/connections`; returns counts by connection id.

        They run on a thread of the server; their exceptions go to `sys.unraisablehook`, and the reading then has no
        application counts.
        """

# Utilities for applications. Names, defaults and behaviour are those of PyPI `wse-server` 2.5.1 (the reference), unless
# noted otherwise. An invalid value raises ValueError, a value of another type TypeError.

@final
class RustCircuitBreaker:
    """A circuit breaker: stops calls to an operation that keeps failing.

    When closed, calls are allowed. After `failure_threshold` failures in a row it opens and rejects calls. After
    `reset_timeout` seconds it is half open: it allows `success_threshold` calls and closes if all of them succeed; if
    one fails, it is open for `reset_timeout` again.
    """

    def __new__(
        cls, failure_threshold: int = 5, reset_timeout: float = 60.0, success_threshold: int = 3
    ) -> RustCircuitBreaker:
        """Creates a closed circuit breaker.

        Raises:
            ValueError: a threshold is not from 1 to 2**32 - 1, or the time is negative or NaN.
        """
    def allow(self) -> bool:
        """Whether a call is allowed now. After an allowed call, record its success or failure."""
    def record_success(self) -> None:
        """Records that a call succeeded."""
    def record_failure(self) -> None:
        """Records that a call failed."""
    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """The current state of the breaker."""

@final
class RustTokenBucket:
    """A token bucket for rate limits: tokens refill with time, up to a capacity."""

    def __new__(cls, capacity: float, refill_rate: float, initial_tokens: float | None = None) -> RustTokenBucket:
        """Creates a bucket that gains `refill_rate` tokens per second; full unless `initial_tokens` is less.

        Raises:
            ValueError: a number is negative or NaN (here and in `acquire()`; the reference accepts these).
        """
    def acquire(self, tokens: float) -> bool:
        """Takes `tokens` if that many are available, otherwise none. Returns whether it took them."""
    @property
    def tokens(self) -> float:
        """The number of tokens that are available now."""
    def reset(self) -> None:
        """Fills the bucket."""

@final
class RustSequencer:
    """Sequence numbers from 1, and detection of duplicates among the latest `window_size` ids."""

    def __new__(cls, window_size: int) -> RustSequencer:
        """Creates a sequencer that remembers `window_size` ids.

        Raises:
            ValueError: the window size is 0 or more than ten million.
        """
    def next_seq(self) -> int:
        """Returns the next number."""
    def get_current_seq(self) -> int:
        """The last number that was returned; 0 if none was."""
    def is_duplicate(self, event_id: str) -> bool:
        """Whether the id is remembered. If not, it is added; the oldest id is dropped when the window is full.

        Raises:
            ValueError: the id has more than 1024 bytes.
        """
    def cleanup(self, max_age_secs: float) -> None:
        """Drops ids that are older than `max_age_secs` seconds."""
    def seen_count(self) -> int:
        """The number of remembered ids."""

@final
class RustEventSequencer:
    """Restores the order of numbered events, topic by topic."""

    def __new__(cls, window_size: int = 10000, max_out_of_order: int = 100) -> RustEventSequencer:
        """Creates a sequencer that remembers `window_size` ids and holds events up to `max_out_of_order` ahead.

        Raises:
            ValueError: one of them is out of range.
        """
    def next_seq(self) -> int:
        """Returns the next number for outbound events, from 1."""
    def get_current_sequence(self) -> int:
        """The last number that was returned; 0 if none was."""
    def is_duplicate(self, event_id: str) -> bool:
        """As `RustSequencer.is_duplicate()`; duplicates are counted in the statistics."""
    def process_sequenced_event(self, topic: str, sequence: int, event: Any) -> list[Any] | None:
        """Adds an event and returns the events that can now be delivered, in order; None if there are none.

        The first event of a topic sets its position. The next event in sequence is returned with the waiting ones that
        follow it. An event ahead of its turn waits; one too far ahead is delivered, and all missing ones before it are
        given up; one behind is dropped.

        Raises:
            ValueError: the number is negative, or 2**36 or more ahead, which lost events can't explain (the topic
                continues where it is; `reset_sequence(topic)` starts it again); the topic has more than 1024 bytes; or
                there are too many topics (100 000) or waiting events (a million).
        """
    def cleanup(self) -> None:
        """Drops events that have waited for more than five minutes, and topics without events for an hour."""
    def reset_sequence(self, topic: str | None = None) -> None:
        """Drops the state of one topic, or of all. The sequence number and the ids are kept."""
    def get_buffer_stats(self) -> dict[str, Any]:
        """Statistics of waiting events by topic."""
    def get_sequence_stats(self) -> dict[str, Any]:
        """Counts of duplicates, out-of-order and dropped events so far, and the progress of each topic.

        `gaps` has all missing numbers below the highest waiting one (the reference leaves out the first of them).
        """

@final
class RustPriorityQueue:
    """A priority queue: the highest number first, equal ones in order of arrival."""

    def __new__(cls, max_size: int) -> RustPriorityQueue:
        """Creates a queue for `max_size` messages, at most ten million."""
    def push(self, priority: int, message: Any) -> bool:
        """Adds a message. Returns False if the queue is full."""
    def pop(self) -> Any | None:
        """Removes and returns the most urgent message; None if the queue is empty."""
    def drain(self, max_count: int) -> list[Any]:
        """Removes and returns at most `max_count` messages, the most urgent first."""
    def len(self) -> int:
        """The number of waiting messages."""
    def is_full(self) -> bool:
        """Whether the queue is full."""
    def clear(self) -> None:
        """Removes all messages."""

@final
class RustPriorityMessageQueue:
    """A queue with five levels (10, 8, 5, 3, 1), each first in, first out; when full, the least urgent are dropped."""

    def __new__(cls, max_size: int = 1000, batch_size: int = 10) -> RustPriorityMessageQueue:
        """Creates a queue for `max_size` messages, which are dequeued in batches of `batch_size`."""
    def enqueue(self, message: Any, priority: int = 5) -> bool:
        """Adds a message at the level nearest to `priority`; of two equally near, the more urgent.

        When the queue is full, the oldest message of level 1, else 3, else 5 is dropped for the new one, even if the
        new one is less urgent. Returns False, and drops the new one, if only messages of levels 10 and 8 wait.
        """
    def dequeue_batch(self) -> list[tuple[int, Any]]:
        """Removes and returns the next batch as (level, message), the most urgent first."""
    @property
    def size(self) -> int:
        """The number of waiting messages."""
    def clear(self) -> None:
        """Removes all messages; counters are kept."""
    def get_stats(self) -> dict[str, Any]:
        """Depths and drops by level, `backpressure` (more than 80 % full), the age of the oldest message in seconds."""

@final
class RustCompressionManager:
    """zlib compression with statistics, and MessagePack. May be used by any thread."""

    def __new__(cls, threshold: int = 1024, compression_level: int = 6) -> RustCompressionManager:
        """Sets the size above which data should be compressed, and the level: 1 (fastest) to 9 (smallest)."""
    def should_compress(self, data: bytes) -> bool:
        """Whether the data is longer than the threshold, in bytes."""
    def compress(self, data: bytes, level: int | None = None) -> bytes:
        """As `rust_compress()`, at the manager's level unless `level` is given."""
    def decompress(self, data: bytes) -> bytes:
        """As `rust_decompress()`, with the same errors."""
    def pack_msgpack(self, data: dict[Any, Any]) -> bytes:
        """Encodes as MessagePack. Values of types that it doesn't have become text, times in ISO 8601.

        Raises:
            ValueError: an integer is beyond 64 bits (the reference writes text), or the data is nested more than 64
                deep.
        """
    def unpack_msgpack(self, data: bytes) -> Any:
        """Decodes MessagePack; an extension becomes a list of its type and its bytes.

        Raises:
            ValueError: the data is not exactly one value, nested at most 64 deep (the reference raises RuntimeError,
                and ignores data after the value).
        """
    def pack_event(self, event: dict[Any, Any], use_msgpack: bool = True) -> bytes:
        """Encodes as MessagePack, or as JSON with bytes as hexadecimal text, NaN as null, and keys as text."""
    def unpack_event(self, data: bytes, is_msgpack: bool = True) -> Any:
        """Decodes MessagePack or, if the data isn't MessagePack, JSON.

        Raises:
            ValueError: the data is neither (the reference returns a dict with `_decode_error` for bytes that aren't
                JSON).
        """
    def get_stats(self) -> dict[str, Any]:
        """Numbers of streams compressed and decompressed, failures of both, and bytes saved."""
    def reset_stats(self) -> None:
        """Resets all counters to 0."""

def rust_jwt_encode(
    claims: dict[str, Any], secret: bytes, algorithm: JwtAlgorithm = "HS256", key_id: str | None = None
) -> str:
    """Creates a signed token.

    Args:
        claims: The claims of the token.
        secret: The secret of HS256, at least 32 bytes; a private key as PEM for RS256 and ES256.
        algorithm: The algorithm that signs the token.
        key_id: The `kid` of the token's header.

    Raises:
        ValueError: the algorithm is unknown, the key is too weak or doesn't fit it (the reference: RuntimeError), or
            the token would be longer than the limit of 8192 bytes for decoding.
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
    """Verifies a token and returns its claims; None if it is invalid.

    `exp` is required and `nbf` respected, with 30 seconds of leeway. If `issuer` or `audience` is given, the token must
    have it (the reference accepts tokens without). If `key_id` is given, tokens signed with `secret` must have it as
    `kid`, but not those signed with `previous_secret`.

    Raises:
        ValueError: the algorithm is unknown, or a key is too weak or doesn't fit it (the reference returns None).
    """

def rust_hmac_sha256(key: bytes, data: bytes) -> bytes:
    """HMAC-SHA256 of `data`, 32 bytes."""

def rust_sha256(data: bytes) -> str:
    """SHA-256 of `data` as 64 hexadecimal digits."""

def rust_sign_message(payload_json: str, secret: bytes) -> str:
    """Signs a text: HMAC-SHA256, in hexadecimal, of the hexadecimal SHA-256 of the text."""

def rust_transform_event(event: dict[str, Any], sequence: int, event_type_map: dict[str, str]) -> dict[str, Any]:
    """Wraps an application's event in an envelope.

    An event that has `v`, `t`, `p`, `id` and `ts` is an envelope already: the same dict is returned, with `seq` added
    if it is missing. Otherwise a new dict is created, with values that JSON has: bytes as text, ids and times as text,
    enumerations as their values, tuples and sets as lists, objects as dicts of their attributes, keys as text.

    Raises:
        ValueError: the event is nested more than 64 deep, or contains itself.
    """

def rust_match_event(event: dict[str, Any], criteria: dict[str, Any]) -> bool:
    """Whether an event meets criteria such as `{"p.price": {"$gt": 5}, "t": "trade"}`.

    Operators: `$eq $ne $gt $lt $gte $lte $in $nin $exists $regex $contains $startswith $endswith`; `$and` and `$or`
    take lists of criteria. An unknown operator is never met. Values without an order are neither greater nor less (the
    reference raises). Patterns match from the start of a text, in linear time, without look-around or backreferences.

    Raises:
        ValueError: a pattern is invalid, or the criteria are nested more than 32 deep.
        TypeError: an operand has the wrong type for its operator, or a key is not text.
    """

def rust_compress(data: bytes, level: int) -> bytes:
    """Compresses to a zlib stream at level 1 (fastest) to 9 (smallest).

    Raises:
        ValueError: the level is out of range.
    """

def rust_decompress(data: bytes) -> bytes:
    """Decompresses a zlib stream.

    Raises:
        ValueError: the data is not exactly one complete stream, or inflates to more than 10 MiB (the reference raises
            RuntimeError, and returns the first part of a truncated stream).
    """

def rust_should_compress(data: bytes, threshold: int) -> bool:
    """Whether the data is longer than the threshold, in bytes."""

def rust_aes_gcm_encrypt(key: bytes, plaintext: bytes) -> bytes:
    """Encrypts with AES-256-GCM. Returns a random IV (12 bytes), ciphertext and tag (16). The key has 32 bytes."""

def rust_aes_gcm_decrypt(key: bytes, data: bytes) -> bytes:
    """Decrypts the output of `rust_aes_gcm_encrypt()`.

    Raises:
        ValueError: it was encrypted with another key, modified, or is too short (the reference raises RuntimeError for
            a forgery).
    """

def rust_ecdh_generate_keypair() -> tuple[bytes, bytes]:
    """Generates a P-256 key pair: the private key (32 bytes) and the public key (65 bytes, uncompressed)."""

def rust_ecdh_derive_shared_secret(private_key: bytes, peer_public_key: bytes) -> bytes:
    """Derives the 32-byte key that both sides share: HKDF-SHA256 of the ECDH secret, without salt.

    Raises:
        ValueError: one of them is not a P-256 key in the form of `rust_ecdh_generate_keypair()`.
    """
