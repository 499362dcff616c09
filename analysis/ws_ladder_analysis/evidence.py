"""The tables of the conditions of a run: machines, CPU roles, versions, generators. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench_format.schemas import Environment, NodeFacts, WorkerEvidence

from . import wording
from .cells import NOTHING, Cell, Column, Table, Tone
from .ladders import Ladder
from .load import Bundle

_MACHINE: tuple[tuple[str, Callable[[Environment], str]], ...] = (
    ("kernel", lambda one: one.kernel),
    ("CPU", lambda one: one.cpu_model),
    ("CPUs", lambda one: f"{one.cpus}, of which {one.cpus_allowed} allowed"),
    ("memory", lambda one: wording.memory(one.memory_bytes)),
    ("virtualised", lambda one: _yes(one.virtualised)),
    ("congestion control", lambda one: one.congestion_control),
    ("somaxconn", lambda one: one.somaxconn),
    ("local ports", lambda one: one.port_range),
    ("tcp_rmem", lambda one: one.tcp_rmem),
    ("tcp_wmem", lambda one: one.tcp_wmem),
    ("open files", lambda one: wording.count(one.open_files)),
    ("MTU", lambda one: f"{one.mtu}" if one.mtu is not None else ""),
)
# What a cluster says of its nodes.
_NODE: tuple[tuple[str, Callable[[NodeFacts], str]], ...] = (
    ("machine type", lambda one: one.instance_type),
    ("zone", lambda one: one.zone),
    ("architecture", lambda one: one.architecture),
    ("operating system", lambda one: one.os_image),
    ("kubelet", lambda one: one.kubelet),
    ("container runtime", lambda one: one.container_runtime),
    ("network plugin", lambda one: one.network_plugin),
    ("CPU manager", lambda one: one.cpu_manager),
    ("CPUs for pods", lambda one: one.allocatable_cpus),
    ("pods of others", lambda one: ", ".join(one.neighbours)),
)


def machines(bundle: Bundle) -> Table:
    """One column for each machine that took part."""
    found = bundle.run.machines
    columns = (Column("", number=False), *(Column(one.host or "unnamed", number=False) for one in found))
    rows = [(Cell(name), *(_text(read(one)) for one in found)) for name, read in _MACHINE]
    if any(one.node is not None for one in found):
        nodes = [one.node for one in found]
        rows += [(Cell(name), *(_text(read(one) if one else "") for one in nodes)) for name, read in _NODE]
    return Table("Machines", columns, tuple(rows))


def roles(bundle: Bundle) -> Table:
    """The CPUs of each role, and how much of them it may use."""
    plan = bundle.run.plan
    shapes = {"service": plan.cpu.service.cpus, "worker": plan.cpu.worker.cpus}
    if bundle.run.outside is not None:
        # The service was started outside the run, so the plan's CPU share doesn't apply to it.
        del shapes["service"]
    rows = [
        (Cell(role), Cell(cpus), _text(f"{shapes[role]:g}" if role in shapes else ""))
        for role, cpus in bundle.run.cpu_roles.items()
    ]
    columns = (Column("role", number=False), Column("CPUs", number=False), Column("may use", number=False))
    return Table("CPU roles", columns, tuple(rows))


def versions(bundle: Bundle) -> Table:
    """Versions of the programs used; a commit with local changes is marked."""
    run = bundle.run
    clean = bool(run.commit) and not run.commit.endswith("+changes")
    commit = Cell(run.commit or "outside a checkout", tone=Tone.PLAIN if clean else Tone.WARN)
    rows = [(Cell("ws-ladder"), Cell(run.version)), (Cell("commit"), commit)]
    rows += [(Cell(name), _text(version)) for name, version in run.versions.items()]
    return Table("Versions", (Column("program", number=False), Column("version", number=False)), tuple(rows))


def generators(ladders: Sequence[Ladder]) -> Table:
    """Settings, start skew, clock uncertainty and throttling of each ladder's workers, over all its trials."""
    rows = tuple(_generator(ladder) for ladder in ladders if ladder.sample is not None)
    titles = (
        "ladder",
        "service",
        "program",
        "workers",
        "TCP_NODELAY",
        "congestion control",
        "messages per write",
        "largest start skew",
        "clock ±",
        "throttling",
    )
    return Table("Generators", tuple(Column(title, number=False) for title in titles), rows)


def _generator(ladder: Ladder) -> tuple[Cell, ...]:
    results = [trial.result for trial in ladder.trials if trial.result is not None]
    workers = [worker for result in results for worker in result.workers]
    writes = [result.figures.messages_per_write for result in results]
    known = [one for one in writes if one is not None]
    skew = max((abs(worker.start_skew_ns) for worker in workers), default=None)
    clock = max((worker.clock_uncertainty_ns for worker in workers), default=None)
    return (
        Cell(ladder.name),
        Cell(ladder.service),
        _text(_all(worker.program for worker in workers)),
        _text(_all(str(len(result.workers)) for result in results)),
        _text(_all(_yes(worker.nodelay) for worker in workers)),
        _text(_all(worker.congestion_control for worker in workers)),
        _text(_span(known)),
        _text(wording.duration(skew)),
        _text(wording.duration(clock)),
        _text(_throttling(workers)),
    )


def _throttling(workers: Sequence[WorkerEvidence]) -> str:
    rules = _all(worker.throttling.replace("_", " ") for worker in workers)
    periods = sum(worker.periods or 0 for worker in workers)
    if not periods:
        return rules
    throttled = sum(worker.throttled_periods or 0 for worker in workers)
    return f"{rules}: {wording.share(throttled / periods)} of periods"


def _span(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = wording.digits(min(values)), wording.digits(max(values))
    return low if low == high else f"{low}–{high}"


def _all(values: Iterable[str]) -> str:
    """The distinct values, joined by commas."""
    return ", ".join(dict.fromkeys(values))


def _yes(whether: bool) -> str:
    return "yes" if whether else "no"


def _text(text: str) -> Cell:
    return Cell(text) if text and text != wording.NOT_AVAILABLE else NOTHING
