"""Names of peers with TLS: an instance's name and address belong to the names in its certificate."""

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from authority import Authority
from cluster_harness import cluster, refused
from cryptography import x509
from harness import DEADLINE_SECONDS, Running, wait_until

Start = Callable[..., Running]
HELLO, ANNOUNCE, ADDRESSES = 0x04, 0x09, 0x0A
# Sorts before the names of servers, so that its links stay.
NAME = b"0-fake-peer"
# The bits of the published server, and the one of numbered publications.
CAPABILITIES = 15 | 1 << 16


def frame(kind: int, topic: bytes = b"", payload: bytes = b"") -> bytes:
    body = struct.pack("<BBHI", kind, 0, len(topic), len(payload)) + topic + payload
    return struct.pack(">I", len(body)) + body


class FakePeer:
    """A peer with a certificate that sends what the test gives it."""

    def __init__(self, stream: ssl.SSLSocket) -> None:
        self.stream = stream
        hello = b"WSE\0" + struct.pack("<HH", 1, len(NAME)) + NAME + struct.pack("<I", CAPABILITIES)
        stream.sendall(frame(HELLO, payload=hello))

    def next(self) -> tuple[int, bytes] | None:
        """Type and payload of the next frame; None when the connection ends."""
        head = self._read(4)
        if head is None:
            return None
        body = self._read(struct.unpack(">I", head)[0])
        return None if body is None else (body[0], body[8:])

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                part = self.stream.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return data


@pytest.fixture
def fake_peer() -> Iterator[Callable[..., FakePeer]]:
    """Connects peers with the files of a certificate; closes them after the test."""
    with ExitStack() as stack:

        def connect(running: Running, files: dict[str, Path]) -> FakePeer:
            context = ssl.create_default_context(cafile=files["tls_ca"])
            context.load_cert_chain(files["tls_cert"], files["tls_key"])
            plain = socket.create_connection(("127.0.0.1", running.server.cluster_port or 0), DEADLINE_SECONDS)
            return FakePeer(stack.enter_context(context.wrap_socket(plain, server_hostname="localhost")))

        yield connect


class Named(Authority):
    """An authority whose certificates have one name each, except that of the server `one`."""

    def alternative_names(self, _name: str) -> list[x509.GeneralName]:
        return super().alternative_names(_name) if _name == "one" else [x509.DNSName(_name)]


def test_a_remembered_name_belongs_to_the_names_of_its_certificate(
    start: Start, fake_peer: Callable[..., FakePeer], tmp_path: Path
) -> None:
    authority = Named(tmp_path, "ours")
    one = start(metrics_port=0)
    cluster(one, **authority.files("one"))
    first = fake_peer(one, authority.files("a.example"))
    wait_until(lambda: one.server.cluster_peers_count() == 1)
    first.stream.close()
    wait_until(lambda: one.server.cluster_peers_count() == 0)
    other = fake_peer(one, authority.files("b.example"))
    assert other.next() is None, "the name is another's"
    wait_until(lambda: refused(one, "name") == 1)
    assert one.server.cluster_peers_count() == 0
    renewed = fake_peer(one, authority.files("a.example"))
    kind, _ = renewed.next() or (None, None)
    assert kind == HELLO
    wait_until(lambda: one.server.cluster_peers_count() == 1)


def test_an_address_counts_only_if_it_is_in_the_certificate_of_its_announcer(
    start: Start, fake_peer: Callable[..., FakePeer], tmp_path: Path
) -> None:
    authority = Named(tmp_path, "ours")
    one = start()
    cluster(one, cluster_addr="127.0.0.1", **authority.files("one"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        peer = fake_peer(one, authority.files("localhost"))
        peer.stream.sendall(frame(ANNOUNCE, b"127.0.0.1:%d" % port) + frame(ANNOUNCE, b"localhost:%d" % port))
        lists = b""
        while b"localhost:%d" % port not in lists:
            kind, payload = peer.next() or (None, b"")
            assert kind is not None
            lists += payload if kind == ADDRESSES else b""
        assert b"127.0.0.1:%d" % port not in lists
