"""Certificates for tests: their content, and that existing ones are reused."""

import ssl
import subprocess
import threading
from pathlib import Path

from bench_tls import Tls, generate


def test_certificates_are_for_this_machine_and_the_given_hosts(tmp_path: Path) -> None:
    files = generate(tmp_path / "tls", ["node-1.example", "192.0.2.7", "[::1]", "0.0.0.0", "127.0.0.1"])
    output = subprocess.run(
        ["openssl", "x509", "-in", files.cert, "-noout", "-subject", "-ext", "subjectAltName"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {name.strip() for line in output.splitlines() for name in line.split(",")}
    assert {"DNS:localhost", "DNS:node-1.example", "IP Address:127.0.0.1", "IP Address:192.0.2.7"} <= names
    assert "IP Address:0:0:0:0:0:0:0:1" in names
    assert not any("0.0.0.0" in name for name in names)


def test_both_sides_of_a_connection_can_use_the_certificates(tmp_path: Path) -> None:
    files = generate(tmp_path / "tls", [])
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.load_cert_chain(files.cert, files.key)
        context.load_verify_locations(files.ca)
    server.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    unfinished = sides
    for _ in range(10):
        unfinished = [side for side in unfinished if not completes_handshake(side)]
    assert not unfinished
    assert sides[1].getpeercert()


def completes_handshake(side: ssl.SSLObject) -> bool:
    """Advances the TLS handshake; returns whether it is complete."""
    try:
        side.do_handshake()
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


def test_certificates_are_created_again_for_another_host(tmp_path: Path) -> None:
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
