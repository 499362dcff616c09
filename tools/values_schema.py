"""Writes the plan's JSON Schema into the chart's `values.schema.json`, which holds the rest by hand.

So Helm refuses at install what `ladder plan check` would refuse, and the two can't drift apart. Searches and replicas
it refuses as well: clusters climb tiers, each with one pod of the service.
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
    """The values' schema with the plan's definitions in place of the old; its own begin small."""
    definitions = dict(plan["$defs"])
    definitions["WirePlan"] = {key: value for key, value in plan.items() if key not in ("$schema", "$defs", "title")}
    definitions["WireLadder"] = with_tiers(definitions["WireLadder"])
    own = {name: value for name, value in values["$defs"].items() if name[0].islower()}
    used = reached("WirePlan", definitions)
    return values | {"$defs": own | {name: definitions[name] for name in sorted(used)}}


def reached(name: str, definitions: dict[str, Any]) -> set[str]:
    """The definition of this name and all that it refers to."""
    found, waiting = set(), {name}
    while waiting:
        found.add(name := waiting.pop())
        references = re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[name]))
        waiting |= set(references) - found
    return found


def with_tiers(ladder: dict[str, Any]) -> dict[str, Any]:
    """A ladder's schema without searches and replicas, which are for one machine."""
    properties = {name: value for name, value in ladder["properties"].items() if name not in ("search", "replicas")}
    return ladder | {"properties": properties, "required": [*ladder["required"], "tiers"]}


def main() -> None:
    """Rewrite the file in place."""
    values = with_plan(json.loads(VALUES.read_text()), json.loads(PLAN.read_text()))
    VALUES.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
