"""The secret of a cluster through Python: as an argument and from the environment, and what is refused without it."""

from collections.abc import Callable

import pytest
from harness import Running, wait_until
from wse_server import RustWSEServer

SECRET = "a secret of this test, and no other"
Start = Callable[..., Running]


def address(running: Running) -> str:
    return f"127.0.0.1:{running.server.cluster_port}"


@pytest.mark.parametrize("as_bytes", [False, True])
def test_servers_with_the_same_secret_are_linked_and_one_without_it_is_not(start: Start, as_bytes: bool) -> None:
    one, other, open_ = start(), start(), start(metrics_port=0)
    secret = SECRET.encode() if as_bytes else SECRET
    one.server.connect_cluster([], cluster_port=0, cluster_secret=secret)
    open_.server.connect_cluster([address(one)])
    other.server.connect_cluster([address(one)], cluster_secret=SECRET)
    wait_until(lambda: one.server.cluster_peers_count() == 1 and other.server.cluster_peers_count() == 1)
    assert not open_.server.cluster_connected()


def test_the_environment_has_the_secret_where_no_argument_has(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = start(), start()
    one.server.connect_cluster([], cluster_port=0, cluster_secret=SECRET)
    monkeypatch.setenv("WSE_CLUSTER_SECRET", SECRET)
    other.server.connect_cluster([address(one)])
    wait_until(one.server.cluster_connected)


def test_other_machines_need_a_secret_or_tls_and_the_error_says_so(start: Start) -> None:
    running = start()
    with pytest.raises(ValueError, match=r"192\.0\.2\.1:7006 .*cluster_secret.*WSE_CLUSTER_SECRET.*TLS"):
        running.server.connect_cluster(["192.0.2.1:7006"])
    with pytest.raises(ValueError, match="cluster_secret has 3 bytes: give 32 or more"):
        running.server.connect_cluster([], cluster_port=0, cluster_secret="123")
    everywhere = RustWSEServer("0.0.0.0", 0)
    everywhere.start()
    try:
        with pytest.raises(ValueError, match=r"port on 0\.0\.0\.0 .*cluster_secret.*or listen on 127\.0\.0\.1"):
            everywhere.connect_cluster([], cluster_port=0)
        everywhere.connect_cluster([], cluster_port=0, cluster_secret=SECRET)
    finally:
        everywhere.stop()
