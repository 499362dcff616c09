"""Under which conditions figures were measured: what two figures must share before they are put side by side. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass

from bench_format.schemas import ContractOutcome, Environment, Run, RunState, WireLadder, WirePlan

from .checks import check
from .ladders import Tier
from .load import Bundle

# Each condition by its name, with its value as text.
Conditions = Mapping[str, str]

# Fields of a ladder that select or repeat trials, and don't change what one trial measures.
_SELECTION = {"repeats", "samples", "search", "services", "tiers", "variant", "workload", "window_seconds"}


def machine(one: Environment) -> Conditions:
    """The properties of a machine that influence a figure. Memory is rounded, because a kernel keeps a part of it."""
    named = {name: _text(value) for name, value in asdict(one).items() if name not in {"memory_bytes", "open_files"}}
    return named | {"memory": f"{one.memory_bytes / 2**30:.2g} GiB"}


def machine_name(run: Run, host: bool = True) -> str:
    """The machines of a run as text: hosts, CPU models and numbers of CPUs. `host=False` leaves out the host names."""
    return "; ".join(
        f"{one.host + ': ' if host else ''}{one.cpus} × {one.cpu_model}, CPUs {one.cpus_allowed} allowed"
        for one in run.machines
    )


def limits(run: Run) -> Conditions:
    """Which CPUs each role may use, and how much of them."""
    roles = {f"CPUs of {role}": cpus for role, cpus in run.cpu_roles.items()}
    shapes = {f"CPU share of {role}": _text(shape) for role, shape in asdict(run.plan.cpu).items()}
    if run.outside is None:
        return roles | shapes
    # Without its own service ladder doesn't set how much CPU it may use.
    del shapes["CPU share of service"]
    return roles | shapes | {"service started by": "another program"}


def ladder(plan: WirePlan, workload: str, variant: str) -> Conditions | None:
    """What the plan says about each trial of a ladder; `None` if it has no such ladder."""
    own = next((one for one in plan.ladders if (one.workload, one.variant) == (workload, variant)), None)
    return None if own is None else _ladder(plan, own)


def _ladder(plan: WirePlan, own: WireLadder) -> Conditions:
    found = {name: _text(getattr(own, name)) for name in own.__dataclass_fields__ if name not in _SELECTION}
    warmup = plan.warmup_seconds if own.warmup_seconds is None else own.warmup_seconds
    window = plan.window_seconds if own.window_seconds is None else own.window_seconds
    whole = {
        "seed": plan.seed,
        "workers": plan.workers,
        "connections_per_worker": plan.connections_per_worker,
        "service_process": plan.service_process,
        "warmup_seconds": float(warmup),
        "window_seconds": float(window),
        "drain_seconds": float(plan.drain_seconds),
        "validity": plan.validity,
    }
    return found | {name: _text(value) for name, value in whole.items()}


def generator(tier: Tier) -> Conditions:
    """The load generator of a tier's valid trials."""
    workers = [worker for result in tier.results for worker in result.workers]

    def each(values: object) -> str:
        return ", ".join(dict.fromkeys(map(str, values)))  # type: ignore[call-overload]

    return {
        "generator": each(worker.program for worker in workers),
        "workers": each(len(result.workers) for result in tier.results),
        "CPUs of a worker": each(worker.cpu_limit for worker in workers),
        "TCP_NODELAY": each(worker.nodelay for worker in workers),
        "congestion control of workers": each(worker.congestion_control for worker in workers),
    }


def differences(left: Conditions, right: Conditions) -> tuple[str, ...]:
    """Each condition that differs, with both values."""
    names = dict.fromkeys((*left, *right))
    return tuple(
        f"{name}: {left.get(name, 'none')} and {right.get(name, 'none')}"
        for name in names
        if left.get(name) != right.get(name)
    )


def why_unusable(bundle: Bundle) -> tuple[str, ...]:
    """Why no figure of a bundle may stand beside another bundle's; empty if they may."""
    found = []
    if bundle.run.state is not RunState.FINISHED:
        found.append(f"the run is {bundle.run.state}, not finished; resume it")
    wrong = check(bundle).disagreements
    if wrong:
        found.append(f"its files disagree in {len(wrong)} figures, first in {wrong[0].where}: {wrong[0].description}")
    found += [f"{service} broke its contract after its last trial" for service in broken_contracts(bundle)]
    return tuple(found)


def broken_contracts(bundle: Bundle) -> tuple[str, ...]:
    """Services that broke their contract after their last trial, so that their figures don't count."""
    return tuple(
        one.service
        for one in bundle.contracts
        if one.after is not None and one.after.outcome is not ContractOutcome.PASSED
    )


def _text(value: object) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is not part of a plan")
