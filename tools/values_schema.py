"""Writes the plan's JSON Schema into the chart's `values.schema.json`; the rest of that file is written by hand.

So Helm rejects at install what `ladder plan check` would reject, and the two can't drift apart. It also rejects
a ladder with both tiers and a search, because no command says which is meant.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLAN = ROOT / "docs/schemas/plan.schema.json"
VALUES = ROOT / "charts/ws-ladder/values.schema.json"


def with_plan(values: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Replaces the plan's definitions in the values' schema; the chart's own begin with a lower-case letter."""
    definitions = dict(plan["$defs"])
    definitions["WirePlan"] = {key: value for key, value in plan.items() if key not in ("$schema", "$defs", "title")}
    definitions["WireLadder"] = with_one_load(definitions["WireLadder"])
    own = {name: value for name, value in values["$defs"].items() if name[0].islower()}
    used = reached("WirePlan", definitions)
    return values | {"$defs": own | {name: definitions[name] for name in sorted(used)}}


def reached(name: str, definitions: dict[str, Any]) -> set[str]:
    """The names of a definition and all definitions that it refers to."""
    found, waiting = set(), {name}
    while waiting:
        found.add(name := waiting.pop())
        references = re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[name]))
        waiting |= set(references) - found
    return found


def with_one_load(ladder: dict[str, Any]) -> dict[str, Any]:
    """A ladder's schema with either tiers or a search."""
    return ladder | {"oneOf": [{"required": ["tiers"]}, {"required": ["search"]}]}


def main() -> None:
    """Rewrites `values.schema.json` in place."""
    values = with_plan(json.loads(VALUES.read_text()), json.loads(PLAN.read_text()))
    VALUES.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
