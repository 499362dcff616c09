"""End-to-end encryption of version 2, against Python's `cryptography`, with the vectors that all sides share."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from harness import DEADLINE_SECONDS, Running, message
from websockets.exceptions import ConnectionClosed

VECTORS = Path(__file__).resolve().parents[2] / "testdata/wse-encryption-2.json"
TEXT, BINARY = b"\x01", b"\x02"
CLIENT, SERVER = 0, 1


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


class Direction:
    """One direction of a connection: its key, and the number of the next message."""

    def __init__(self, secret: bytes, client: bytes, server: bytes, sender: int) -> None:
        info = (b"wse-encryption-2 client", b"wse-encryption-2 server")[sender] + client + server
        self.key = AESGCM(HKDF(SHA256(), 32, salt=None, info=info).derive(secret))
        self.sender, self.next = sender, 0

    def _number(self) -> bytes:
        self.next += 1
        return (self.next - 1).to_bytes(8, "big")

    def seal(self, plain: bytes) -> bytes:
        number = self._number()
        return number + self.key.encrypt(bytes(4) + number, plain, bytes([self.sender]) + number)

    def open(self, sealed: bytes) -> bytes:
        number = self._number()
        assert sealed[:8] == number
        return self.key.decrypt(bytes(4) + number, sealed[8:], bytes([self.sender]) + number)


class Private:
    """A connection that has agreed on keys."""

    def __init__(self, running: Running) -> None:
        self.connection = running.connect()
        self.id = message(self.connection)["p"]["details"]["connection_id"]
        own = ec.generate_private_key(ec.SECP256R1())
        key = base64.b64encode(public_bytes(own)).decode()
        hello = {"features": {"encryption": True}, "encryption_public_key": key, "encryption_version": 2}
        self.connection.send(json.dumps({"t": "client_hello", "p": hello}))
        self.hello = message(self.connection)["p"]
        peer = base64.b64decode(self.hello["encryption_public_key"])
        secret = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), peer))
        self.outbound, self.inbound = (Direction(secret, public_bytes(own), peer, side) for side in (CLIENT, SERVER))

    def send(self, plain: bytes) -> bytes:
        """Sends a message, opcode first. Returns it as it was sent."""
        sealed = b"E:" + self.outbound.seal(plain)
        self.connection.send(sealed)
        return sealed

    def receive(self) -> bytes:
        data = self.connection.recv(DEADLINE_SECONDS)
        assert isinstance(data, bytes)
        assert data[:2] == b"E:"
        return self.inbound.open(data[2:])


def test_the_vectors_are_those_of_another_implementation() -> None:
    vectors: dict[str, Any] = json.loads(VECTORS.read_text())
    client, server = (
        ec.derive_private_key(int(vectors[name], 16), ec.SECP256R1()) for name in ("client_private", "server_private")
    )
    publics = public_bytes(client), public_bytes(server)
    assert publics == (bytes.fromhex(vectors["client_public"]), bytes.fromhex(vectors["server_public"]))
    secret = client.exchange(ec.ECDH(), server.public_key())
    directions = {"client": Direction(secret, *publics, CLIENT), "server": Direction(secret, *publics, SERVER)}
    for each in vectors["messages"]:
        assert directions[each["from"]].seal(bytes.fromhex(each["plain"])).hex() == each["sealed"]


def test_all_messages_are_encrypted_in_both_directions(running: Running) -> None:
    client = Private(running)
    assert (client.hello["features"]["encryption"], client.hello["encryption_version"]) == (True, 2)
    running.drain(1)
    client.send(TEXT + b'{"t":"order","p":{"qty":2}}')
    assert running.drain(1) == [("msg", client.id, {"t": "order", "p": {"qty": 2}})]
    client.send(TEXT + b'{"t":"ping","p":{"timestamp":1}}')
    assert client.receive().startswith(TEXT + b'{"c":"WSE","t":"PONG"')
    running.server.send(client.id, "as it is")
    assert client.receive() == TEXT + b"as it is"
    running.server.send_bytes(client.id, b"bytes")
    assert client.receive() == BINARY + b"bytes"
    size = running.server.send_event(client.id, {"t": "secret", "p": {"long": "x" * 2000}})
    event = client.receive()
    assert (event[:1], len(event) + 26) == (BINARY, size)


@pytest.mark.parametrize("evil", ["plain", "repeated"])
def test_messages_that_an_attacker_could_insert_end_the_connection(running: Running, evil: str) -> None:
    client = Private(running)
    running.drain(1)
    sent = client.send(TEXT + b'{"t":"pay","p":100}')
    client.connection.send(sent if evil == "repeated" else '{"t":"pay","p":666}')
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1002
    kinds = [kind for kind, _, _ in running.drain(2)]
    assert kinds == ["msg", "disconnect"], "once, and nothing else"
