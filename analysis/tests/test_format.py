"""The dataclasses mirror the Rust crate `bench-format` field by field; the fixtures are what its schemas describe."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ws_ladder_analysis.bench_format import SCHEMA, books, environment, plan, pod, result, run, service

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "loadgen/bench-format/src"
# Of a service, `bench-format` has what the contract has.
CONTRACT = ROOT / "services/contract/src"
# Where the Python name differs, or a Rust enum with fields became a class of its own.
RENAMED = {
    "Histogram": "WireHistogram",
    "WireLadder": "Ladder",
    "WirePlan": "Plan",
    "WireSearch": "SearchPlan",
    "WireConfirm": "Confirm",
}


def rust_text(module: str) -> str:
    """The source of a module and of those inside it."""
    if module == "service":
        files = sorted(CONTRACT.glob("*.rs"))
    else:
        files = [SOURCES / f"{module}.rs", *sorted((SOURCES / module).glob("*.rs"))]
    return "".join(file.read_text(encoding="utf-8") for file in files)


def rust_structs(module: str) -> dict[str, set[str]]:
    """Public structs of a module with their public fields."""
    found = {}
    for name, body in re.findall(r"^pub struct (\w+) \{\n(.*?)^\}", rust_text(module), re.MULTILINE | re.DOTALL):
        found[RENAMED.get(name, name)] = set(re.findall(r"^    pub (\w+):", body, re.MULTILINE))
    return found


MODULES = {
    "plan": plan,
    "result": result,
    "run": run,
    "service": service,
    "books": books,
    "environment": environment,
    "pod": pod,
}
# Held by the operator and the workers alone; no file of a bundle has them as a type here.
ELSEWHERE = {"Started", "ConnectionBooks", "ConnectionBook", "Interval", "ProcessesStats", "ReceiverBook", "WorkerBook"}


@pytest.mark.parametrize("module", MODULES)
def test_every_struct_has_the_fields_of_its_rust_twin(module: str) -> None:
    twins = rust_structs(module)
    assert twins
    for name, rust_fields in twins.items():
        if name not in ELSEWHERE and rust_fields:
            kind = getattr(MODULES[module], name)
            assert {field.name.removesuffix("_") for field in dataclasses.fields(kind)} == rust_fields, name


def test_a_trial_id_has_the_fields_of_its_rust_twin() -> None:
    twin = rust_structs("trial")["TrialId"]
    assert {field.name for field in dataclasses.fields(result.TrialId)} == twin


def test_reasons_and_bounds_are_those_of_rust() -> None:
    text = rust_text("result")
    for name, kind in (("ReasonKind", result.ReasonKind), ("BoundBy", result.BoundBy), ("Witness", result.Witness)):
        match = re.search(rf"pub enum {name} \{{(.*?)^\}}", text, re.MULTILINE | re.DOTALL)
        assert match
        variants = re.findall(r"^    (\w+),", match[1], re.MULTILINE)
        snake = {re.sub(r"(?<!^)(?=[A-Z])", "_", variant).lower() for variant in variants}
        assert {member.value for member in kind} == snake


def test_the_newest_schema_is_that_of_rust() -> None:
    assert f"pub const SCHEMA: u32 = {SCHEMA};" in (SOURCES / "lib.rs").read_text(encoding="utf-8")


FILES = {
    "run": "run.json",
    "trial-result": "trials/*/*/*/*/result.json",
    "worker-result": "trials/*/*/*/*/workers/0.json",
}


@pytest.mark.parametrize("schema", sorted(path.name for path in (ROOT / "docs/schemas").glob("*.json")))
def test_the_fixtures_are_what_the_schemas_describe(schema: str, example_folder: Path) -> None:
    name = schema.removesuffix(".schema.json")
    validator = Draft202012Validator(json.loads((ROOT / "docs/schemas" / schema).read_text(encoding="utf-8")))
    Draft202012Validator.check_schema(validator.schema)
    for file in list(example_folder.glob(FILES.get(name, "nothing")))[:6]:
        validator.validate(json.loads(file.read_text(encoding="utf-8")))
