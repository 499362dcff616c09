"""Peers without the token at the coordinator while trials run: none gets in, and every trial ends as it should."""

import random
from collections.abc import Callable

from hostile.ladder_runs import Climb
from hostile.peers import connected, drained, end_of_sending, mutated, sent
from hostile.target import until

Count = Callable[[str, int], None]

SEED = 20
REQUESTS = 300
GROWTH_MEBIBYTES = 64


def request(head: str, body: bytes = b"", *, length: int | None = None) -> bytes:
    """A request with a token that isn't the run's."""
    size = len(body) if length is None else length
    lines = (head, "Host: localhost", "Authorization: Bearer guess", f"Content-Length: {size}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def test_peers_without_the_token_do_not_disturb_a_run(climb: Callable[..., Climb], count: Count) -> None:
    running = climb()
    until(lambda: running.finished() >= 1, "the first trial has a result")
    address = running.coordinator()
    chance = random.Random(SEED)
    before, memory = running.descriptors(), running.memory()
    unfinished = []
    for number in range(REQUESTS):
        peer = connected(address)
        sent(peer, request("PUT /v1/workers/0/result HTTP/1.1", b"x" * (number % 90), length=1 << 30)[:number])
        unfinished.append(peer)
    for head in (
        "GET /v1/workers/0/next HTTP/1.1",
        "POST /v1/workers HTTP/1.1",
        "POST /v1/workers/0/ready HTTP/1.1",
        "PUT /v1/workers/0/result HTTP/1.1",
        "GET /v1/workers/0/samples HTTP/1.1",
    ):
        with connected(address) as peer:
            sent(peer, request(head, b"{}"))
            response = peer.recv(4096)
            assert response.startswith(b"HTTP/1.1 401"), (head, response)
    for number in range(REQUESTS):
        with connected(address) as peer:
            broken = mutated(request("POST /v1/workers HTTP/1.1", b'{"worker":0}'), chance)
            sent(peer, broken)
            end_of_sending(peer)
            response = drained(peer)
        assert not response.startswith(b"HTTP/1.1 2"), f"seed {SEED}, request {number}: {broken!r}: {response!r}"
    count("inputs", 2 * REQUESTS + 5)
    assert running.process.poll() is None, "the peers came while the run went on"
    for peer in unfinished:
        peer.close()
    until(
        lambda: running.process.poll() is not None or running.descriptors() <= before + 8,
        "the descriptors of the peers are closed",
    )
    assert running.memory() - memory < GROWTH_MEBIBYTES
    assert running.wait() in (0, 2), running.printed()
    assert running.states() == ["finished"] * 4, running.printed()
