"""Clusters with TLS through Python: which peers a server accepts, and certificates that are replaced."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from cluster_harness import cluster, numbers, publish, refused, subscriber, wait_for_interest
from harness import Running, wait_until

Start = Callable[..., Running]


def test_certificates_of_one_authority_are_a_cluster_by_name_and_by_address(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    one, other, named = start(), start(), start()
    cluster(one, **authority.files("one"))
    cluster(other, one, **authority.files("other"))
    cluster(named, peers=[f"localhost:{one.server.cluster_port}"], **authority.files("named"))
    wait_until(lambda: one.server.cluster_peers_count() == 2)
    client, _ = subscriber(other, "a")
    wait_for_interest(one, "a")
    publish(one, "a", range(5000))
    assert numbers(client, 5000) == list(range(5000))


def test_foreign_and_unencrypted_peers_are_refused_and_counted_and_others_stay(start: Start, tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    options: dict[str, Any] = {"metrics_port": 0}
    one, other, plain, foreign_node, lonely = (start(**options) for _ in range(5))
    cluster(one, **authority.files("one"))
    cluster(other, one, **authority.files("other"))
    cluster(plain, one)
    cluster(foreign_node, one, **foreign.files("foreign"))
    cluster(lonely, plain, **authority.files("lonely"))

    def peers() -> list[int]:
        return [it.server.cluster_peers_count() for it in (one, other, plain, foreign_node, lonely)]

    wait_until(lambda: refused(one, "tls") >= 2 and refused(plain, "tls") >= 2 and refused(foreign_node, "tls") >= 1)
    # On a busy machine the others may be refused before these two have met.
    wait_until(lambda: peers()[:2] == [1, 1])
    assert peers() == [1, 1, 0, 0, 0]


def test_reloaded_certificates_apply_to_new_links_and_wrong_ones_are_refused(start: Start, tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    one, other, joining = start(), start(), start()
    files = old.files("one")
    cluster(one, **files)
    cluster(other, one, **old.files("other"))
    wait_until(one.server.cluster_connected)
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(ValueError, match=r"tls_cert.*wrong\.pem.*PEM"):
        one.server.reload_cluster_tls(wrong, files["tls_key"], files["tls_ca"])
    with pytest.raises(ValueError, match="the key that the certificate was made for"):
        one.server.reload_cluster_tls(files["tls_cert"], old.files("another")["tls_key"], files["tls_ca"])
    fresh = new.files("fresh")
    one.server.reload_cluster_tls(fresh["tls_cert"], fresh["tls_key"], fresh["tls_ca"])
    cluster(joining, one, **new.files("late"))
    wait_until(lambda: one.server.cluster_peers_count() == 2)


def test_the_environment_names_the_files_by_default(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Authority(tmp_path, "ours").files("one")
    for name, file in zip(("CERT", "KEY", "CA"), ("tls_cert", "tls_key", "tls_ca"), strict=True):
        monkeypatch.setenv(f"WSE_CLUSTER_TLS_{name}", str(files[file]))
    one = start()
    cluster(one)
    context = ssl.create_default_context(cafile=files["tls_ca"])
    context.load_cert_chain(files["tls_cert"], files["tls_key"])
    address = ("127.0.0.1", one.server.cluster_port or 0)
    with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        assert secure.version() == "TLSv1.3"
