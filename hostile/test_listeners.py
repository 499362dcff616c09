"""Peers that break HTTP and WebSocket or never finish a request: each listener bounds them and serves the others."""

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hostile.peers import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    bombs,
    connected,
    drained,
    end_of_sending,
    frame,
    handshake,
    mutated,
    random_frames,
    sent,
    upgraded,
    violations,
    wait_for_pong,
)
from hostile.target import ENGINE, GATEWAYS, INFERENCE, Program, Target, until

Count = Callable[[str, int], None]

SEED = 20
HALF_OPEN = 300
MUTATED = 400
FRAMES = 400
GROWTH_MEBIBYTES = 96
"""Memory that a listener may gain under one kind of attack."""
SECONDS_FOR_A_HEAD = 15
"""How long a head without end may be read: a service reads on for a while, so that its refusal arrives."""


@contextmanager
def bounded(target: Target) -> Iterator[None]:
    """Checks afterwards that the target runs, gained little memory, kept no descriptor and serves an honest peer."""
    serves(target)
    memory, descriptors = target.memory(), target.descriptors()
    yield
    assert target.is_running(), f"{target.program.name} ended with {target.process.returncode}"
    serves(target)
    grown = target.memory() - memory
    assert grown < GROWTH_MEBIBYTES, f"{target.program.name} gained {grown:.0f} MiB"
    until(lambda: target.descriptors() <= descriptors + 8, f"{target.program.name} closes what was left")


def serves(target: Target) -> None:
    """An honest peer is served: a ping is answered, of the simulator a page."""
    if target.program is INFERENCE:
        with connected(target.address) as peer:
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert drained(peer).startswith(b"HTTP/1.1 200")
        return
    assert target.page("/healthz")[0] == 200
    with upgraded(target.address, target.program.path) as peer:
        peer.sendall(frame(PING, b"are you there"))
        wait_for_pong(peer, b"are you there")
        peer.sendall(frame(CLOSE, struct.pack(">H", 1000)))


def test_unfinished_handshakes_do_not_block_other_clients(listener: Target, count: Count) -> None:
    with bounded(listener):
        head = handshake(listener.program.path)
        peers = []
        for number in range(HALF_OPEN):
            peers.append(connected(listener.address))
            sent(peers[-1], head[: number % len(head)])
        serves(listener)
        for peer in peers:
            peer.close()
    count("inputs", HALF_OPEN)


def test_headers_without_end_are_cut_off(listener: Target, count: Count) -> None:
    with bounded(listener):
        for line in (b"X-Filler: " + b"x" * 1000 + b"\r\n", b"x" * 1000, b"X: y\r\n"):
            with connected(listener.address) as peer:
                peer.sendall(f"GET {listener.program.path} HTTP/1.1\r\nHost: localhost\r\n".encode())
                deadline = time.monotonic() + SECONDS_FOR_A_HEAD
                while sent(peer, line):
                    assert time.monotonic() < deadline, "the head is still being read"
            count("inputs", 1)


def test_unfinished_bodies_do_not_block_other_clients(listener: Target, count: Count) -> None:
    request = f"POST {listener.program.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx".encode()
    with bounded(listener):
        peers = [connected(listener.address) for _ in range(HALF_OPEN)]
        for peer in peers:
            sent(peer, request)
        serves(listener)
        for peer in peers:
            peer.close()
    count("inputs", HALF_OPEN)


def test_broken_requests_are_refused_and_others_are_served(listener: Target, count: Count) -> None:
    chance = random.Random(SEED)
    with bounded(listener):
        for number in range(MUTATED):
            request = mutated(handshake(listener.program.path), chance)
            with connected(listener.address) as peer:
                sent(peer, request)
                end_of_sending(peer)
                response = drained(peer)
            assert response[:9] in (b"", b"HTTP/1.1 ", b"HTTP/1.0 ") or listener.program is INFERENCE, (
                f"seed {SEED}, request {number}: {request!r} was answered by {response[:100]!r}"
            )
    count("inputs", MUTATED)


def test_frames_that_break_the_protocol_close_their_connection(target: Target, count: Count) -> None:
    with bounded(target):
        for name, data in violations():
            with upgraded(target.address, target.program.path) as peer:
                sent(peer, data)
                received = drained(peer)
            closes = bytes([0x80 | CLOSE]) in received or not received
            assert closes, f"{name}: the connection ended with {received[-100:]!r}"
            count("inputs", 1)


def test_random_frames_harm_only_their_own_connection(target: Target, count: Count) -> None:
    chance = random.Random(SEED)
    with bounded(target), upgraded(target.address, target.program.path) as bystander:
        for _ in range(FRAMES):
            with upgraded(target.address, target.program.path) as peer:
                sent(peer, random_frames(chance))
        bystander.sendall(frame(PING, b"still"))
        wait_for_pong(bystander, b"still")
    count("inputs", FRAMES)


def test_frames_that_arrive_byte_by_byte_are_read(target: Target, count: Count) -> None:
    data = frame(PING, b"slow") + frame(PING, b"slower")
    with bounded(target), upgraded(target.address, target.program.path) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in data:
            peer.sendall(bytes([byte]))
        wait_for_pong(peer, b"slower")
    count("inputs", len(data))


def test_bombs_do_not_explode(target: Target, count: Count) -> None:
    with bounded(target):
        for name, payload in bombs():
            for opcode in (TEXT, BINARY):
                with upgraded(target.address, target.program.path) as peer:
                    sent(peer, frame(opcode, payload))
                    sent(peer, frame(CLOSE, struct.pack(">H", 1000)))
                    received = drained(peer)
                assert bytes([0x80 | CLOSE]) in received or not received, f"{name}: {received[:100]!r}"
                count("inputs", 1)


def test_a_peer_that_sends_pings_and_never_reads_is_bounded(target: Target, count: Count) -> None:
    pings = frame(PING, b"x" * 125) * 500
    with bounded(target):
        peers = []
        for _ in range(8):
            peer = upgraded(target.address, target.program.path)
            peer.settimeout(0.2)
            try:
                for _ in range(200):
                    if not sent(peer, pings):
                        break
            except TimeoutError:
                pass
            peers.append(peer)
        serves(target)
        for peer in peers:
            peer.close()
    count("inputs", 8 * 200)


def test_empty_fragments_without_end_cost_no_memory(target: Target, count: Count) -> None:
    with bounded(target), upgraded(target.address, target.program.path) as peer:
        sent(peer, frame(TEXT, b"", final=False))
        for _ in range(50):
            if not sent(peer, frame(0, b"", final=False) * 1000):
                break
    count("inputs", 50_000)


@pytest.mark.parametrize("program", [ENGINE, *GATEWAYS, INFERENCE], ids=lambda program: program.name)
def test_a_service_without_descriptors_recovers_when_they_are_free_again(
    start: Callable[..., Target], count: Count, program: Program
) -> None:
    target = start(program, descriptors=128)
    with bounded(target):
        peers = []
        for address in (target.address, target.metrics_address):
            for _ in range(150):
                peers.append(connected(address))
        for peer in peers:
            peer.close()
        until(lambda: target.descriptors() < 64, "the descriptors are free again")
    assert target.page("/readyz")[0] == 200
    count("faults", 2)
