"""The figures that others published for services and clients of the same protocol, and what each counted.

They were measured on one machine with 32 cores and 64 hardware threads, which client and server shared, with a server
that handed nothing to an application. A rate per core can be compared with another machine's; a latency can't, and what
a client counted is not a delivery.

Each `Source` names its document and the test or paragraph in it. `RUST` is the stress test with the Rust client (tests
1 to 7), `TYPESCRIPT` the one with the TypeScript client, `OVERVIEW` the page of headline numbers, `FANOUT` the page on
fan-out, used here only for its memory table (`seeds_fanout.py` has the rest). What a number counted was read in the
code of the client and the server that produced it; its version comes from the history of their repository.
"""

from __future__ import annotations

from dataclasses import replace

from .published import Count, Document, Held, Memory, Most, Percentiles, PublishedClient, Rates, Source

# The machine of all published figures.
MACHINE = "AMD EPYC 7502P, 128 GB"
CORES = 32
THREADS = 64


CLIENTS = (
    PublishedClient(
        "Rust (tokio)",
        1,
        CORES,
        14.7e6,
        30.0e6,
        15_020,
        500_000,
        "written by the client; the server parsed JSON and threw it away, and threw binary messages away undecoded;"
        " 500 000 was the configured limit",
    ),
    PublishedClient(
        "TypeScript (ws)",
        64,
        CORES,
        6.95e6,
        7.9e6,
        10_673,
        64_000,
        "put into buffers of up to 16 MiB per connection, whether or not they were ever written; 64 programs of a shell"
        " loop, added up by hand over windows that did not coincide",
    ),
    PublishedClient(
        "TypeScript (ws)",
        1,
        1,
        116e3,
        118e3,
        5_508,
        64_000,
        "put into buffers, as above",
    ),
    PublishedClient(
        "Python (websockets)",
        64,
        CORES,
        6.9e6,
        None,
        None,
        None,
        "all processes' counts over the longest of their own five seconds, which did not overlap; the figure is that of"
        " 1 000 processes, three times what 64 to 128 of them reached there",
    ),
)

RUST = Document(
    "Rust client",
    "WSE Stress Test, Rust client",
    "28 February 2026",
    "2.0.0",
    "2.0.0 in the throughput table and part of the size matrix, which were taken anew; all else is the document of"
    " 1.3.9, of 24 February, unchanged",
)
OVERVIEW = Document(
    "overview",
    "WSE Performance Benchmarks",
    "February 2026",
    "1.3.8",
    "an earlier run of the server source of 1.3.9, with an earlier client; of the same processor it says 64 cores and"
    " 128 threads",
)
TYPESCRIPT = Document("TypeScript client", "WSE Stress Test, TypeScript client", "24 February 2026", "1.3.9", "1.3.9")
FANOUT = Document(
    "fan-out",
    "WSE Fan-out Benchmark Results",
    "26 February 2026",
    "1.4.4",
    "an unreleased build between 1.4.4 and 2.0.0; the memory table is of an earlier run of 1.4.4",
)

WSE_BENCH, TS_BENCH, PY_BENCH = "wse-bench", "wse-ts-bench", "wse-py-bench"

# Floods. All of them used the same server.
_NO_APPLICATION = (
    "All floods: the server program, as published, turns on neither drain mode nor callbacks, whatever the documents"
    " say. Run like that it parses JSON, only unmasks binary messages, and drops both: no application sees any."
)
_WRITTEN = (
    "Rust client, floods: frames that the client handed to its sockets, over the time until its last task had ended."
    " Nobody asked the server. “Errors” are connections that never opened; a send that failed ended its connection in"
    " silence."
)
_UNDECODED = (
    "Rust client, test 5: that binary messages were not decoded would explain why they look twice as fast as JSON. An"
    " earlier run of the same server source, on the same day, had MessagePack at 0.9 to 6.0 million a second."
)
_SIZES = "Tests 4: the sizes are names; 64 bytes are 54, and the others 10 less than their name."
_EARLIER = (
    "Overview: the client of this run copied each message before it sent it. The server source is that of 1.3.9; from"
    " what was committed, nothing else changed between this run and the next."
)
_BUFFERED = (
    "TypeScript client, floods: counted when put into a buffer of up to 16 MiB for each connection, whether or not it"
    " was ever written."
)
_BY_HAND = (
    "TypeScript client, 64 processes: as many programs of a shell loop, added up by hand over windows that did not"
    " coincide."
)
_OWN_SECONDS = (
    "Python client: a process for each connection, each with five seconds of its own from when it woke, all counts over"
    " the longest of these. The windows of 1 000 processes don't coincide, and their figure is three times what 64 to"
    " 128 processes reached there. A message has 194 bytes."
)

_FLOOD = Source(
    RUST,
    "test 3",
    "2.0.0",
    WSE_BENCH,
    None,
    Count.WRITTEN,
    "the server, as published, parses it and throws it away",
    (_NO_APPLICATION, _WRITTEN),
)
_SIZED = replace(_FLOOD, part="test 4", version="2.0.0 in part", caveats=(_NO_APPLICATION, _WRITTEN, _SIZES))
_FORMAT = replace(_FLOOD, part="test 5", version="1.3.9")
_BINARY = replace(
    _FORMAT,
    fate="the server, as published, throws it away undecoded",
    caveats=(_NO_APPLICATION, _WRITTEN, _UNDECODED),
)
_HEADLINE = replace(
    _FLOOD, document=OVERVIEW, part="headline numbers", version="1.3.8", caveats=(_NO_APPLICATION, _WRITTEN, _EARLIER)
)
_NODE = Source(
    TYPESCRIPT,
    "test 3",
    "1.3.9",
    TS_BENCH,
    1,
    Count.BUFFERED,
    "what is written, the server as published throws away",
    (_NO_APPLICATION, _BUFFERED),
)
_NODE_SIZED = replace(_NODE, part="test 4", caveats=(_NO_APPLICATION, _BUFFERED, _SIZES))
_NODES = replace(_NODE, part="test 3, 64 processes", processes=64, caveats=(_NO_APPLICATION, _BUFFERED, _BY_HAND))
_PYTHON = replace(
    _FLOOD,
    part="comparison with Python",
    version="1.3.8",
    program=PY_BENCH,
    caveats=(_NO_APPLICATION, _OWN_SECONDS),
)


def _tiers(*figures: float) -> dict[int, float]:
    """Maps figures of the Rust suite to its tiers, starting at the lowest."""
    tiers = (100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 50_000, 75_000, 100_000)
    return dict(zip(tiers, figures, strict=False))


def _node_tiers(*figures: float) -> dict[int, float]:
    """Maps figures of the TypeScript suite to its tiers, starting at the lowest."""
    return dict(zip((100, 500, 1_000, 5_000, 10_000, 30_000, 50_000), figures, strict=False))


def _at_few_connections(*figures: float) -> dict[int, float]:
    """Maps figures of the comparison of formats to its four tiers."""
    return dict(zip((100, 1_000, 5_000, 10_000), figures, strict=True))


FLOODS = (
    Rates(_FLOOD, _tiers(14.5e6, 14.7e6, 14.7e6, 13.6e6, 11.4e6, 11.0e6, 11.8e6, 12.1e6, 13.8e6), CORES),
    Rates(_FORMAT, _at_few_connections(14.1e6, 14.2e6, 11.2e6, 15.8e6), CORES),
    Rates(_BINARY, _at_few_connections(29.6e6, 27.0e6, 24.7e6, 24.8e6), CORES, "msgpack"),
    Rates(_BINARY, _at_few_connections(30.0e6, 27.5e6, 25.1e6, 24.9e6), CORES, "compressed"),
    Rates(_HEADLINE, {100: 13.5e6, 100_000: 9.1e6}, CORES),
    Rates(replace(_HEADLINE, fate=_BINARY.fate), {500: 20.5e6}, CORES, "compressed"),
    *(
        Rates(_SIZED, _tiers(*(1e3 * figure for figure in figures)), CORES, "json", size)
        for size, figures in (
            (64, (20_700, 20_600, 20_100, 19_700, 19_300, 19_000, 17_200, 16_100, 15_300, 14_700, 15_000)),
            (256, (13_800, 14_000, 13_900, 13_700, 13_000, 13_000, 11_100, 11_000, 10_600, 10_600, 8_900)),
            (1_024, (11_000, 11_000, 11_000, 9_200, 9_500, 8_700, 8_000, 7_400, 6_700, 6_500, 6_600)),
            (4_096, (4_900, 4_900, 4_900, 4_300, 4_200, 3_400, 3_700, 3_600, 3_300, 2_000, 2_300)),
            (16_384, (1_200, 1_200, 1_200, 1_100, 944, 923, 790, 1_100, 971, 919, 824)),
            (65_536, (290, 288, 287, 263, 239, 237, 266, 275, 242, 261, 267)),
        )
    ),
    # One process uses one thread for its messages, so its figure is that of one core.
    Rates(_NODE, _node_tiers(116e3, 105e3, 88e3, 42e3, 20e3), 1),
    *(
        Rates(_NODE_SIZED, _node_tiers(*(1e3 * figure for figure in figures)), 1, "json", size)
        for size, figures in (
            (64, (124, 107, 81, 35, 17)),
            (256, (115, 95, 79, 34, 17)),
            (1_024, (89, 74, 62, 28, 14)),
            (4_096, (47, 41, 35, 17, 9)),
            (16_384, (20, 16, 13, 7, 3)),
            (65_536, (6, 5, 4, 2, 1)),
        )
    ),
    *(
        Rates(replace(_NODE, part="test 5"), _node_tiers(*(1e3 * figure for figure in figures)), 1, name)
        for name, figures in (
            ("json", (117, 96, 80, 35, 17)),
            ("msgpack", (118, 97, 82, 35, 18)),
            ("compressed", (118, 97, 82, 35, 18)),
        )
    ),
    # 100 connections each.
    Rates(_NODES, {6_400: 6.95e6}, CORES),
    *(
        Rates(replace(_NODES, part="test 5, 64 processes"), {6_400: 7.9e6}, CORES, name)
        for name in ("msgpack", "compressed")
    ),
    Rates(_PYTHON, {100: 2.3e6, 1_000: 6.9e6}, CORES),
)

_BATCHES = (
    "All storms: opened in batches of 500, each of which waits for its slowest connection, with 10 ms of rest between"
    " them; all of that is in the rate."
)
_DIVIDED = "TypeScript client, 64 processes: the connections of as many programs, divided by 6.0 s."
_STORM = Source(RUST, "test 1", "1.3.9", WSE_BENCH, None, Count.OPENED, caveats=(_BATCHES,))
_NODE_STORM = replace(_STORM, document=TYPESCRIPT, program=TS_BENCH, processes=1)
STORMS = (
    Rates(
        _STORM,
        _tiers(4_559, 8_385, 12_409, 15_020, 13_467, 14_543, 14_224, 14_229, 7_387, 4_979, 5_070),
        CORES,
    ),
    Rates(_NODE_STORM, _node_tiers(1_087, 2_183, 2_680, 4_279, 5_508, 5_219, 4_453), 1),
    Rates(
        replace(_NODE_STORM, part="test 1, 64 processes", processes=64, caveats=(_BATCHES, _DIVIDED)),
        {64_000: 10_673},
        CORES,
    ),
)

_TOGETHER = (
    "All pings: 50 on each connection, each after the answer to the last, all connections at once. One that took longer"
    " than 5 s was left out."
)
_PING = Source(RUST, "test 2", "1.3.9", WSE_BENCH, None, Count.ROUND_TRIP, caveats=(_TOGETHER,))


# The published percentiles; the TypeScript client has only the first three.
PERCENTILES = (50.0, 95.0, 99.0, 99.9, 99.99)


def _percentiles(*milliseconds: float) -> dict[float, float]:
    """Maps milliseconds to the published percentiles, the lowest first."""
    return dict(zip(PERCENTILES, milliseconds, strict=False))


PINGS = (
    Percentiles(
        _PING,
        {
            100: _percentiles(0.38, 0.79, 11.9, 23.7, 37.7),
            500: _percentiles(3.4, 6.3, 30.5, 39.0, 41.2),
            1_000: _percentiles(6.5, 13.8, 22.3, 38.6, 49.5),
            2_000: _percentiles(14.0, 30.1, 39.2, 50.3, 60.8),
            5_000: _percentiles(29.6, 94.5, 134.5, 175.1, 197.9),
            10_000: _percentiles(59.8, 182.0, 233.0, 282.1, 312.3),
            20_000: _percentiles(156.7, 308.7, 415.7, 565.3, 769.5),
            30_000: _percentiles(266.8, 441.1, 652.3, 915.5, 1_224.7),
            50_000: _percentiles(498.7, 718.9, 1_150.0, 1_669.1, 2_111.5),
        },
    ),
    Percentiles(
        replace(
            _PING,
            document=OVERVIEW,
            part="headline numbers",
            version="1.3.8",
            caveats=(_TOGETHER, "Overview: that client read a clock of whole milliseconds."),
        ),
        {100: _percentiles(1.0)},
    ),
    Percentiles(
        replace(_PING, document=TYPESCRIPT, program=TS_BENCH, processes=1),
        {
            100: _percentiles(6.1, 16.4, 19.6),
            500: _percentiles(17.3, 57.2, 77.6),
            1_000: _percentiles(40.5, 112.5, 152.8),
            5_000: _percentiles(199.9, 535.3, 621.4),
            10_000: _percentiles(408.3, 1_160.0, 1_360.0),
        },
    ),
)

_UNBROKEN = (
    "All holds: a ping every 5 s. A connection is gone when its stream ended or a send failed; a ping that"
    " was not answered within 5 s counts neither as a failure nor in the latencies."
)
_HOLD = Source(RUST, "test 6", "1.3.9", WSE_BENCH, None, Count.UNBROKEN, caveats=(_UNBROKEN,))
HOLDS = (
    Held(_HOLD, _tiers(*[1.0] * 11), 30.0),
    Held(
        replace(_HOLD, document=TYPESCRIPT, program=TS_BENCH, processes=1),
        {1_000: 1.0, 5_000: 1.0, 10_000: 1.0},
        30.0,
    ),
)

LIMITS = (
    Most(
        Source(
            RUST,
            "test 7",
            "1.3.9",
            WSE_BENCH,
            None,
            Count.CONFIGURED,
            caveats=(
                "Rust client, test 7: the probes didn't ask whether the connections that they held were alive. The"
                " steps above 256 000 can only come from the first build of that client; later ones end there.",
            ),
        ),
        {499_000: "the server was configured to take 500 000"},
    ),
    Most(
        Source(
            TYPESCRIPT,
            "test 7",
            "1.3.9",
            TS_BENCH,
            1,
            Count.CONFIGURED,
            caveats=("TypeScript client, test 7: no probe failed, so no limit of the server was found.",),
        ),
        {64_000: "the client could open 65 536 files"},
    ),
)

_READ_BUFFERS = (
    "By the defaults of the WebSocket library that server and client were built on, each end of a connection that has"
    " read anything has a read buffer of 128 KiB. 65 GB are what both ends of 250 000 connections come to, so it is not"
    " certain that the fan-out page's figures are the server's alone."
)
_RESIDENT = Source(
    FANOUT,
    "memory at scale",
    "1.4.4",
    None,
    None,
    Count.RESIDENT,
    "called the server's, under fan-out",
    (_READ_BUFFERS,),
)
_SWAPPED = replace(_RESIDENT, fate="called the server's, under fan-out; besides, 90 GB of swap")
_FLOODED = replace(
    _RESIDENT, document=RUST, part="memory footprint", version="1.3.9", fate="the server's, in floods of 64 KB"
)
_BOTH_ENDS = replace(_FLOODED, part="test 7", fate="of server and client; besides, 30 GB of swap")
_STATED = replace(_FLOODED, counted=Count.STATED, fate="without the read buffers")
MEMORY = (
    Memory(_STATED, {100_000: 4_400}, "about 440 MB"),
    Memory(_FLOODED, {100_000: 27e9 / 100_000}, "about 27 GB"),
    Memory(_RESIDENT, {250_000: 65e9 / 250_000}, "about 65 GB"),
    Memory(_SWAPPED, {500_000: 119e9 / 500_000}, "about 119 GB"),
    Memory(_BOTH_ENDS, {500_000: 123e9 / 500_000}, "about 123 GB"),
)
