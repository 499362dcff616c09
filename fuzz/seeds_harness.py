"""Seeds of the targets that read the harness's own files: plans, runs, uploads; and cursors of the books."""

from __future__ import annotations

import struct

from seed_values import Seeds, two

COUNT, SMALL, LARGEST, BITS, BILLION, NEGATIVE, NULL, TEXT, FRACTION, REMOVED = range(10)

PLAN = """schema: 1
name: seed
why: a start
seed: 1
services: [wse-server]
window_seconds: 1
ladders:
"""


def change(which: int, kind: int, number: int = 0) -> bytes:
    """One change of a document, as `src/lib.rs` reads it."""
    return struct.pack("<HBQ", which, kind, number)


def connections_cursor() -> Seeds:
    return {
        "cursor": b"18f3a2b4.17",
        "largest": b"ffffffffffffffff.18446744073709551615",
        "too-large": b"1ffffffffffffffff.1",
        "signs": b"+1.+2",
        "zeros": b"000.000",
        "empty": b"",
    }


def judged_upload() -> Seeds:
    found = {f"unchanged-{which}": bytes([which]) + two(b"", b"") for which in range(8)}
    for kind in range(10):
        worker = b"".join(change(37 * step, kind, 10**step) for step in range(8))
        service = b"".join(change(53 * step, kind, 3**step) for step in range(8))
        found[f"changes-{kind}"] = bytes([kind]) + two(worker, service)
    return found


def plan() -> Seeds:
    closed = "- workload: throughput\n  tiers: [1, 20]\n  load: {model: closed}\n"
    opened = (
        "- workload: ping-latency\n  variant: open\n  tiers: [10]\n  samples: true\n"
        "  load: {model: open, rate_per_second: 100, arrivals: poisson}\n"
        "  objectives:\n  - {figure: {percentile_ms: {histogram: response, percentile: 99}}, at_most: 5}\n"
        "  - {figure: error_share, at_most: 0.001}\n"
    )
    search = (
        "- workload: ping-latency\n  load: {model: open, rate_per_second: 100}\n  objectives:\n"
        "  - {figure: {percentile_ms: {histogram: response, percentile: 99}}, at_most: 5}\n"
        "  search: {over: connections, from: 10, to: 1000}\n"
    )
    return {
        "closed": (PLAN + closed).encode(),
        "open": (PLAN + opened).encode(),
        "search": (PLAN + search).encode(),
        "all": ("repeats: 3\nworkers: 2\nwarmup_seconds: 0.5\n" + PLAN + closed + opened).encode(),
        "mistakes": (PLAN.replace("schema: 1", "schema: 9") + closed.replace("tiers", "tires")).encode(),
        "no-times": (PLAN + closed).replace("window_seconds: 1", "window_seconds: .inf").encode(),
        "too-many-trials": ("repeats: 4000000000\n" + PLAN + closed).encode(),
        "empty": b"",
        "tags": b"schema: !!binary AAAA\nname: &a [*a]\n",
    }


def run_file() -> Seeds:
    return {
        "unchanged": b"",
        **{f"changes-{kind}": b"".join(change(29 * step, kind, 7**step) for step in range(9)) for kind in range(10)},
    }


def websocket_service() -> Seeds:
    """Uses by their first byte, changes of the section, and what the service sends, one message before each 0xFF."""
    welcome = b'welcome t=abc {"a":[1],"id":7}\n'
    # The empty message is the time of the pause.
    opening = [welcome, b"", b"subscribed\n"]
    answers = [b'{"id":0}\n{"id":1,"error":1}\n', b"ping\n", b"p 3 12345678\n", b"half", b" a line\n"]
    said = b"\xff".join([*opening, *answers])
    found = {f"unchanged-{use}": bytes([use]) + two(b"", said) for use in range(5)}
    found["denied"] = bytes([1]) + two(b"", b"denied\n")
    for kind in range(10):
        changes = b"".join(change(17 * step, kind, 7**step) for step in range(4))
        found[f"changes-{kind}"] = bytes([kind]) + two(changes, said)
    return found
