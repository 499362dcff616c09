"""Writes the files of a bundle as the store does, and changes them to introduce a fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.bundles.histograms import Json
from tests.bundles.results import trial_result
from tests.bundles.services import service_file
from tests.bundles.spec import TrialSpec, worker_parts
from tests.bundles.workers import environment, worker_results


def plan(specs: list[TrialSpec], name: str) -> Json:
    """A plan that leads to these trials."""
    found: dict[tuple[str, str], Json] = {}
    for spec in specs:
        ladder = found.setdefault(
            (spec.workload, spec.variant),
            {
                "workload": spec.workload,
                "variant": spec.variant,
                "tiers": [],
                "load": spec.load,
                "message": spec.message,
                "service_env": {},
                "services": [],
                "window_seconds": None,
                "objectives": list(spec.objectives),
            },
        )
        ladder["tiers"] = sorted({*ladder["tiers"], spec.tier})
    return {
        "schema": 1,
        "name": name,
        "why": "Shows what a report looks like.",
        "seed": 42,
        "services": list(dict.fromkeys(spec.service for spec in specs)),
        "workers": max((spec.workers for spec in specs), default=1),
        "repeats": max((spec.repeat for spec in specs), default=1),
        "service_process": "repeat",
        "cpu": {"service": {"cpus": 1.0}, "worker": {"cpus": 1.0}},
        "warmup_seconds": 0.5,
        "window_seconds": 2.0,
        "drain_seconds": 10.0,
        "validity": {
            "start_skew_ms": 50.0,
            "delay_p99_ms": 5.0,
            "worker_cpu_share": 0.9,
            "throttled_share": 0.01,
            "send_share": 0.995,
            "bound_share": 0.9,
        },
        "ladders": list(found.values()),
    }


def entry(spec: TrialSpec) -> Json:
    """The trial's entry in `run.json`."""
    if spec.state is not None:
        return {"trial": spec.id, "state": spec.state}
    reasons = [{"kind": kind, "detail": detail} for kind, detail in spec.reasons]
    validity = {"state": "invalid", "reasons": reasons} if reasons else {"state": "valid"}
    return {"trial": spec.id, "state": {"state": "finished", "validity": validity, "passed": None}}


def write(file: Path, value: Json) -> None:
    """Writes a JSON file and creates its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), encoding="utf-8")


def bundle(folder: Path, specs: list[TrialSpec], **overrides: object) -> Path:
    """Writes a bundle with these trials and returns its folder."""
    run_id = str(overrides.get("id", "2026-11-21-example"))
    root = folder / run_id
    entries = []
    for spec in specs:
        this = entry(spec)
        if spec.state is None:
            parts = worker_parts(spec)
            result = trial_result(spec, run_id, parts)
            if result["verdict"] is not None:
                this["state"]["passed"] = result["verdict"]["passed"]
            write(root / "trials" / spec.folder / "result.json", result)
            write(root / "trials" / spec.folder / "service.json", service_file(spec))
            for worker in worker_results(spec, run_id, parts):
                write(root / "trials" / spec.folder / "workers" / f"{worker['worker']}.json", worker)
        entries.append(this)
    run = {
        "schema": 1,
        "id": run_id,
        "started_at": "2026-11-21T22:40:00Z",
        "finished_at": "2026-11-21T22:58:30Z",
        "state": "finished",
        "plan": plan(specs, "example"),
        "command": "ladder run plans/example.yaml",
        "version": "0.1.0",
        "commit": "8f07ac637740ce9a8c0d98b800cdef6ab90f6c08",
        "versions": {"wse-server": "0.1.0", "wse-reference": "2.5.1", "wse-bench": "0.1.0", "python": "3.11.7"},
        "machines": [environment()],
        "cpu_roles": {"service": "0", "worker": "1", "ladder": "1"},
        "trials": entries,
    } | overrides
    write(root / "run.json", run)
    return root


def edit(file: Path, change: Callable[[Json], object]) -> None:
    """Changes a JSON file in place, to introduce a fault."""
    value = json.loads(file.read_text(encoding="utf-8"))
    change(value)
    write(file, value)
