"""The loads of the three published Python clients: single client, multiprocess, brutal. Pure."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from bench_format.schemas import Load, LoadClosed, LoadOpen, Message

from .cli import Options
from .payload import FORMATS

# Nominal sizes in bytes; each message is about ten bytes shorter, as published.
SIZES = (64, 256, 1024, 4096, 16_384, 65_536)
# Time limit of a closed load with a fixed amount of work, which normally ends when the work is done.
WORK_TIMEOUT_SECONDS = 300.0
SINGLE_CONNECTS = 20
SINGLE_CONCURRENT = 10
SINGLE_PINGS = 100
PINGS = 20
CONNECTS_PER_WORKER = 5
BRUTAL_TIERS = (100, 500, 1000)
# Up to this many connections each has its own process; more are shared by `SHARED_PROCESSES` processes.
OWN_PROCESS_UP_TO = 5000
SHARED_PROCESSES = 32
SIZE_CONNECTIONS = 64
FORMAT_CONNECTIONS = 500
HOLD_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class Ladder:
    """One workload in one variant, with its tiers and load."""

    workload: str
    variant: str
    tiers: tuple[int, ...]
    load: Callable[[int], Load]
    # The number of worker processes by tier.
    processes: Callable[[int], int]
    warmup_seconds: float
    window_seconds: float
    # Whether the window has a fixed length. Storms and counted pings end when their work is done.
    fixed_window: bool
    message: Message = field(default_factory=Message)


def single(options: Options) -> list[Ladder]:
    """Ladders of one process: connections one by one and concurrently, then pings and floods on one connection."""
    return [
        _storm("one-by-one", (SINGLE_CONNECTS,), lambda _: 1, in_flight=1),
        _storm("concurrent", (SINGLE_CONCURRENT,), lambda _: 1, in_flight=SINGLE_CONCURRENT),
        _pings((1,), lambda _: 1, SINGLE_PINGS),
        *_floods(options, (1,), (1,), (1,), lambda _: 1),
    ]


def multiprocess(options: Options) -> list[Ladder]:
    """Ladders of `--workers` processes with one connection each."""
    workers = options.workers
    tiers = (workers,)
    return [
        _storm("standard", (CONNECTS_PER_WORKER * workers,), lambda _: workers, in_flight=workers),
        _pings(tiers, lambda _: workers, PINGS),
        *_floods(options, tiers, tiers, tiers, lambda tier: tier),
    ]


def brutal(options: Options) -> list[Ladder]:
    """Ladders with as many connections as the machine can hold; each flooding connection has its own process."""
    tiers = options.tiers or BRUTAL_TIERS
    heavy = options.tiers_heavy or tiers
    cpus = max(1, len(os.sched_getaffinity(0)))

    def event_loops(tier: int) -> int:
        return min(cpus, tier)

    def flood_processes(tier: int) -> int:
        usual = tier if tier <= OWN_PROCESS_UP_TO else SHARED_PROCESSES
        return min(tier, options.processes or usual)

    sizes, formats = (min(SIZE_CONNECTIONS, max(heavy)),), (min(FORMAT_CONNECTIONS, max(heavy)),)
    return [
        _storm("standard", tiers, event_loops, in_flight=options.batch_size),
        _pings(tiers, event_loops, PINGS),
        *_floods(options, heavy, sizes, formats, flood_processes),
        Ladder(
            workload="sustained-hold",
            variant="standard",
            tiers=tiers,
            load=lambda tier: LoadOpen(tier / HOLD_INTERVAL_SECONDS),
            processes=event_loops,
            warmup_seconds=0.0,
            window_seconds=options.duration,
            fixed_window=True,
        ),
    ]


PROFILES = {"single-client": single, "multiprocess": multiprocess, "brutal": brutal}


def _storm(variant: str, tiers: tuple[int, ...], processes: Callable[[int], int], *, in_flight: int) -> Ladder:
    load = LoadClosed(in_flight=in_flight)
    return Ladder("connection-storm", variant, tiers, lambda _: load, processes, 0.0, WORK_TIMEOUT_SECONDS, False)


def _pings(tiers: tuple[int, ...], processes: Callable[[int], int], pings_per_connection: int) -> Ladder:
    load = LoadClosed(messages_per_connection=pings_per_connection)
    return Ladder("ping-latency", "standard", tiers, lambda _: load, processes, 0.0, WORK_TIMEOUT_SECONDS, False)


def _floods(
    options: Options,
    tiers: tuple[int, ...],
    sizes: tuple[int, ...],
    formats: tuple[int, ...],
    processes: Callable[[int], int],
) -> list[Ladder]:
    def flood(workload: str, variant: str, tiers: tuple[int, ...], message: Message) -> Ladder:
        warmup, window = options.warmup, options.duration
        return Ladder(workload, variant, tiers, lambda _: LoadClosed(), processes, warmup, window, True, message)

    return [
        flood("throughput", "json", tiers, Message()),
        *(flood("size-matrix", f"{size}-bytes", sizes, Message(size_bytes=size)) for size in SIZES),
        *(flood("format-comparison", name, formats, Message(format=name)) for name in FORMATS),
    ]
