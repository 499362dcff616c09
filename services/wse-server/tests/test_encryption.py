"""End-to-end encryption, against Python's `cryptography` and with the reference's client."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from harness import DEADLINE_SECONDS, Running, message
from wse_client import SyncWSEClient  # type: ignore[import-untyped]

from bench_server import token


class Private:
    """A connection that has exchanged a key."""

    def __init__(self, running: Running, query: str = "") -> None:
        self.connection = running.connect(query)
        self.id = message(self.connection)["p"]["details"]["connection_id"]
        private_key = ec.generate_private_key(ec.SECP256R1())
        public = private_key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        hello = {"features": {"encryption": True}, "encryption_public_key": base64.b64encode(public).decode()}
        self.connection.send("WSE" + json.dumps({"p": hello, "t": "client_hello"}))
        self.hello = message(self.connection)
        peer = base64.b64decode(self.hello["p"]["encryption_public_key"])
        secret = private_key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), peer))
        self.key = AESGCM(HKDF(SHA256(), 32, salt=None, info=b"wse-encryption/aes-gcm-key").derive(secret))

    def send(self, plain: bytes, iv: bytes = bytes(12)) -> None:
        self.connection.send(b"E:" + iv + self.key.encrypt(iv, plain, None))

    def receive(self) -> bytes:
        data = self.connection.recv(DEADLINE_SECONDS)
        assert isinstance(data, bytes)
        assert data[:2] == b"E:"
        return self.key.decrypt(data[2:14], data[14:], None)


def test_keys_are_exchanged_in_the_hello(running: Running) -> None:
    client = Private(running)
    assert client.hello["t"] == "server_hello"
    assert client.hello["p"]["features"]["encryption"] is True
    assert len(base64.b64decode(client.hello["p"]["encryption_public_key"])) == 65


def test_both_directions_are_encrypted(running: Running) -> None:
    client = Private(running)
    running.drain(1)
    client.send(b'{"t":"ping","p":{"timestamp":1}}')
    client.send(b"hello", bytes(11) + b"\x01")
    expected = [("msg", client.id, {"t": "ping", "p": {"timestamp": 1}}), ("raw", client.id, "hello")]
    assert running.drain(2) == expected
    size = running.server.send_event(client.id, {"t": "secret", "p": {"n": 1, "long": "x" * 2000}})
    plain = client.receive()
    assert size == len(plain) + 30
    assert json.loads(plain)["p"]["n"] == 1
    running.server.broadcast_all('{"t":"all","p":1}')
    assert client.receive() == b'{"c":"U","t":"all","p":1}'
    running.server.broadcast_all_bytes(b"raw")
    assert client.receive() == b"raw"
    running.server.send(client.id, "in the open")
    assert client.connection.recv(DEADLINE_SECONDS) == "in the open"


def test_a_packed_event_is_packed_inside(running: Running) -> None:
    client = Private(running, "?format=msgpack")
    running.server.send_event(client.id, {"t": "secret", "p": {"n": 1}})
    plain = client.receive()
    assert plain[:2] == b"M:"
    assert msgpack.unpackb(plain[2:])["p"] == {"n": 1}


def test_forged_messages_are_dropped_and_counted(running: Running) -> None:
    client = Private(running)
    running.drain(1)
    client.connection.send(b"E:" + bytes(40))
    client.send(b'{"t":"good"}')
    assert running.drain(1) == [("msg", client.id, {"t": "good"})]
    metrics = running.server.prometheus_metrics
    running.wait(lambda: '\nservice_messages_dropped_total{reason="undecryptable"} 1\n' in metrics())


def test_an_invalid_key_is_refused(running: Running) -> None:
    connection = running.connect()
    message(connection)
    hello = {"features": {"encryption": True}, "encryption_public_key": base64.b64encode(b"\x04" + b"x" * 64).decode()}
    connection.send(json.dumps({"t": "client_hello", "p": hello}))
    error = message(connection)
    assert (error["t"], error["p"]["code"], error["p"]["recoverable"]) == ("error", "KEY_EXCHANGE_FAILED", True)
    server_hello = message(connection)
    assert (server_hello["t"], server_hello["p"]["features"]["encryption"]) == ("server_hello", False)


@pytest.fixture
def clients(running: Running) -> Iterator[Callable[..., Any]]:
    """Connects the reference's clients."""
    started: list[Any] = []

    def connect(query: str = "", **options: Any) -> Any:
        client = SyncWSEClient(running.url(query), token=token(int(time.time())), **options)
        started.append(client)
        client.connect(10)
        if options.get("encryption"):
            # The client has keys when it has read the reply to its `client_hello`; until then it doesn't encrypt.
            running.wait(lambda: client._client._security.is_enabled)
        return client

    yield connect
    for client in started:
        client.close()


def connection_of(running: Running, client: Any) -> str:
    """The connection id of a client, from a message that it sends."""
    client.send("hello", {})
    while True:
        for kind, connection_id, data in running.drain(1):
            if kind == "msg" and data["t"] == "hello":
                return str(connection_id)


def payload(client: Any, expected_type: str) -> Any:
    """Receives until an event of this type and returns its payload."""
    while True:
        event = client.recv(timeout=DEADLINE_SECONDS)
        if event.type == expected_type:
            return event.payload


@pytest.mark.parametrize(
    ("query", "encryption", "size"),
    [("", False, 10), ("", False, 3000), ("?format=msgpack", False, 10), ("", True, 10), ("", True, 3000)],
    ids=["json", "compressed", "packed", "encrypted", "long and encrypted"],
)
def test_the_reference_s_client_reads_events_in_every_encoding(
    running: Running, clients: Callable[..., Any], query: str, encryption: bool, size: int
) -> None:
    client = clients(query, encryption=encryption)
    connection_id = connection_of(running, client)
    sent = {"text": "x" * size, "n": 1}
    bytes_sent = running.server.send_event(connection_id, {"t": "event", "p": sent})
    assert payload(client, "event") == sent
    # Only messages that are neither encrypted nor MessagePack are compressed.
    assert (bytes_sent > size) == (encryption or size < 1000)
    running.server.broadcast_all('{"t":"all","p":{"n":2}}')
    assert payload(client, "all") == {"n": 2}


def test_messages_encrypted_by_the_references_client_are_read(running: Running, clients: Callable[..., Any]) -> None:
    client = clients(encryption=True)
    sent_texts: list[str] = []
    encrypt = client._client._security.encrypt

    def watched(text: str) -> Any:
        sent_texts.append(text)
        return encrypt(text)

    client._client._security.encrypt = watched
    connection_of(running, client)
    client.send("order", {"qty": 2})
    ((kind, _, data),) = running.drain(1)
    assert (kind, data["t"], data["p"]) == ("msg", "order", {"qty": 2})
    assert [json.loads(text)["t"] for text in sent_texts] == ["hello", "order"], (
        "the client encrypted no message of these types"
    )
