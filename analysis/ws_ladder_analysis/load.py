"""Reads a bundle from its folder. Computes nothing; a file that can't be read raises an error that names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from bench_format.histogram import Values, decode
from bench_format.meaning import is_valid, reasons, trial_name
from bench_format.schemas import (
    SCHEMA,
    ContractFile,
    Run,
    ServiceFile,
    TimelineEntry,
    TimelineStep,
    TrialEntry,
    TrialFile,
    TrialId,
    TrialResult,
    TrialStateFinished,
    Validity,
    WorkerResult,
)
from bench_format.wire import FormatError
from bench_format.wire import decode as decode_as

T = TypeVar("T", ContractFile, Run, ServiceFile, TrialFile, TrialResult, WorkerResult)


class BundleError(Exception):
    """A bundle can't be read; the text names the file and says what to do."""


@dataclass(frozen=True)
class Trial:
    """A trial of the plan with the files that it left; fields are `None` or empty where it left none."""

    entry: TrialEntry
    result: TrialResult | None
    workers: tuple[WorkerResult, ...]
    service: ServiceFile | None
    # What the trial was judged by; `None` in bundles older than schema 2.
    file: TrialFile | None

    @property
    def id(self) -> TrialId:
        """Service, workload, variant, tier, process and repeat."""
        return self.entry.trial

    @property
    def name(self) -> str:
        """The trial's name, which is also the name of its folder inside `trials/`."""
        return trial_name(self.entry.trial)

    @property
    def of_tier(self) -> bool:
        """Whether the plan's tiers ask for the trial: not a search, and no pilot does."""
        return self.entry.search is None and self.entry.pilot is None

    @property
    def valid(self) -> bool:
        """Whether the trial has a result and that result is valid."""
        return self.result is not None and is_valid(self.result.validity)

    @cached_property
    def histograms(self) -> dict[str, Values]:
        """The decoded histograms of the result, merged over its workers; empty without a result."""
        if self.result is None:
            return {}
        where = f"trials/{self.name}/result.json: histograms"
        return {name: decode(wire, f"{where}.{name}") for name, wire in self.result.histograms.items()}


@dataclass(frozen=True)
class Bundle:
    """A run with all its trials, in climbing order."""

    folder: Path
    run: Run
    trials: tuple[Trial, ...]
    # Folders in `trials/` with a result that `run.json` doesn't list.
    strays: tuple[str, ...]
    # Contract checks, one per service; empty where no program checks the contract and in bundles older than the check.
    contracts: tuple[ContractFile, ...] = ()
    # Start-up times of each service in seconds, by service name; empty in bundles without a timeline.
    starts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def read_bundle(folder: Path) -> Bundle:
    """Reads `run.json` and all files that it lists. Raises `BundleError` when one can't be read."""
    file = folder / "run.json"
    if not file.is_file():
        raise BundleError(f"{folder} is not a bundle: it has no run.json; name a folder such as results/<run-id>")
    run = _read(Run, file)
    try:
        trials = tuple(_trial(folder, entry) for entry in run.trials)
        for trial in trials:
            _ = trial.histograms
    except FormatError as error:
        raise BundleError(f"{folder}: {error}") from error
    for trial in trials:
        if isinstance(trial.entry.state, TrialStateFinished):
            _needs_reasons(trial.entry.state.validity, file)
    known = {trial.name for trial in trials}
    root = folder / "trials"
    found = (file.parent.relative_to(root).as_posix() for file in root.glob("*/*/*/*/result.json"))
    strays = tuple(sorted(name for name in found if name not in known))
    contracts = tuple(_read(ContractFile, file) for file in sorted((folder / "conformance").glob("*.json")))
    return Bundle(folder, run, trials, strays, contracts, _starts(folder / "timeline.jsonl"))


def _starts(file: Path) -> dict[str, tuple[float, ...]]:
    """Seconds from start to ready by service, in the order of its starts."""
    found: dict[str, tuple[float, ...]] = {}
    # The last line may be incomplete when the run was killed.
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            entry = decode_as(TimelineEntry, json.loads(line), f"line {number}")
        except (ValueError, FormatError) as error:
            raise BundleError(f"{file}: line {number}: {error}; restore it from its source, or remove it") from error
        if entry.step is TimelineStep.START_SERVICE and entry.trial is not None:
            seconds = (entry.end_unix_ns - entry.start_unix_ns) / 1e9
            found[entry.trial.service] = (*found.get(entry.trial.service, ()), seconds)
    return found


def _trial(folder: Path, entry: TrialEntry) -> Trial:
    here = folder / "trials" / trial_name(entry.trial)
    file = here / "result.json"
    result = _read(TrialResult, file) if file.is_file() else None
    if result is not None:
        _needs_reasons(result.validity, file)
    if result is not None and result.trial != entry.trial:
        raise BundleError(f"{file} is of another trial, {trial_name(result.trial)}; restore the folder from its source")
    workers = sorted(here.glob("workers/*.json"), key=lambda path: (len(path.stem), path.stem))
    service, judged_by = here / "service.json", here / "trial.json"
    return Trial(
        entry,
        result,
        tuple(_read(WorkerResult, worker) for worker in workers),
        _read(ServiceFile, service) if service.is_file() else None,
        _read(TrialFile, judged_by) if judged_by.is_file() else None,
    )


def _needs_reasons(validity: Validity, file: Path) -> None:
    if not is_valid(validity) and not reasons(validity):
        raise BundleError(f"{file}: validity is invalid without a reason")


def _read(kind: type[T], file: Path) -> T:
    try:
        value = json.loads(file.read_bytes())
        schema = value.get("schema") if isinstance(value, dict) else None
        if not isinstance(schema, int):
            raise FormatError("schema is missing: it is not a file of ws-ladder")
        if schema > SCHEMA:
            raise FormatError(
                f"schema {schema} is newer than {SCHEMA}, the newest this program understands; use a newer ws-ladder"
            )
        return decode_as(kind, value, "")
    except json.JSONDecodeError as error:
        raise BundleError(f"{file} is broken: {error}; it may be cut short, restore it from its source") from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{file} is broken: it isn't UTF-8 ({error.reason})") from error
    except FormatError as error:
        raise BundleError(f"{file}: {error}") from error
