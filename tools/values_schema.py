"""Writes the plan's JSON Schema into the chart's `values.schema.json`, which holds the rest by hand.

So Helm refuses at install what `ladder plan check` would refuse, and the two can't drift apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLAN = ROOT / "docs/schemas/plan.schema.json"
VALUES = ROOT / "charts/ws-ladder/values.schema.json"


def with_plan(values: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """The values' schema with the plan's definitions in place of the old; its own begin small."""
    definitions = dict(plan["$defs"])
    definitions["WirePlan"] = {key: value for key, value in plan.items() if key not in ("$schema", "$defs", "title")}
    own = {name: value for name, value in values["$defs"].items() if name[0].islower()}
    return values | {"$defs": own | {name: definitions[name] for name in sorted(definitions)}}


def main() -> None:
    """Rewrite the file in place."""
    values = with_plan(json.loads(VALUES.read_text()), json.loads(PLAN.read_text()))
    VALUES.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
