"""Certificates for tests: their content, and that existing ones are reused."""

import ssl
import subprocess
import threading
from pathlib import Path

from bench_tls import Tls, generate


def test_they_are_for_this_machine_and_for_the_hosts_that_are_named(tmp_path: Path) -> None:
    files = generate(tmp_path / "tls", ["node-1.example", "192.0.2.7", "[::1]", "0.0.0.0", "127.0.0.1"])
    shown = subprocess.run(
        ["openssl", "x509", "-in", files.cert, "-noout", "-subject", "-ext", "subjectAltName"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {name.strip() for line in shown.splitlines() for name in line.split(",")}
    assert {"DNS:localhost", "DNS:node-1.example", "IP Address:127.0.0.1", "IP Address:192.0.2.7"} <= names
    assert "IP Address:0:0:0:0:0:0:0:1" in names
    assert not any("0.0.0.0" in name for name in names)


def test_both_sides_of_a_connection_can_use_them(tmp_path: Path) -> None:
    files = generate(tmp_path / "tls", [])
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.load_cert_chain(files.cert, files.key)
        context.load_verify_locations(files.ca)
    server.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = ends
    for _ in range(10):
        waiting = [end for end in waiting if not shakes_hands(end)]
    assert not waiting
    assert ends[1].getpeercert()


def shakes_hands(end: ssl.SSLObject) -> bool:
    """Advances the TLS handshake; returns whether it is complete."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def test_two_instances_that_start_together_share_one_authority(tmp_path: Path) -> None:
    found: list[bytes] = []

    def make() -> None:
        found.append(b"".join(Path(file).read_bytes() for file in generate(tmp_path / "tls", ["a.example"])))

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


def test_they_are_made_anew_for_a_host_that_they_are_not_for(tmp_path: Path) -> None:
    def cert(*hosts: str) -> bytes:
        return Path(generate(tmp_path / "tls", hosts).cert).read_bytes()

    first = cert()
    assert cert() == first
    second = cert("b.example")
    assert second != first
    assert cert() == second


def test_only_the_owner_can_read_the_keys(tmp_path: Path) -> None:
    files: Tls = generate(tmp_path / "tls", [])
    for file in ("ca.key", "server.key"):
        assert Path(files.key).with_name(file).stat().st_mode & 0o077 == 0
