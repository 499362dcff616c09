"""The fixtures match docs/schemas, and the types generated from it lose nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_format.schemas import Run, ServiceFile, TrialResult, WorkerResult
from bench_format.wire import decode, to_wire
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "run": "run.json",
    "service-file": "trials/*/*/*/*/service.json",
    "trial-result": "trials/*/*/*/*/result.json",
    "worker-result": "trials/*/*/*/*/workers/0.json",
}
KINDS: dict[str, type] = {
    "run": Run,
    "service-file": ServiceFile,
    "trial-result": TrialResult,
    "worker-result": WorkerResult,
}


def fixtures(name: str, folder: Path) -> list[Any]:
    """The first files of a kind, parsed."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in list(folder.glob(FILES.get(name, "nothing")))[:6]]


@pytest.mark.parametrize("schema", sorted(path.name for path in (ROOT / "docs/schemas").glob("*.json")))
def test_the_fixtures_are_what_the_schemas_describe(schema: str, example_folder: Path) -> None:
    validator = Draft202012Validator(json.loads((ROOT / "docs/schemas" / schema).read_text(encoding="utf-8")))
    Draft202012Validator.check_schema(validator.schema)
    for value in fixtures(schema.removesuffix(".schema.json"), example_folder):
        validator.validate(value)


@pytest.mark.parametrize("name", FILES)
def test_read_values_can_be_written_back_and_match_the_schemas(name: str, example_folder: Path) -> None:
    validator = Draft202012Validator(
        json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8"))
    )
    values = fixtures(name, example_folder)
    assert values
    for value in values:
        written = to_wire(decode(KINDS[name], value, ""))
        validator.validate(written)
        assert holds_all_of(value, written)


def holds_all_of(given: Any, written: Any) -> bool:
    """Whether `written` has all of `given` unchanged; absent fields may be written with their defaults."""
    if isinstance(given, dict):
        return all(name in written and holds_all_of(one, written[name]) for name, one in given.items())
    if isinstance(given, list):
        return len(given) == len(written) and all(map(holds_all_of, given, written))
    return bool(given == written)
