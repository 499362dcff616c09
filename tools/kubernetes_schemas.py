"""Converts Kubernetes' OpenAPI files to schemas for kubeconform, so that manifests are checked without a network.

Usage: kubernetes_schemas.py SOURCE TARGET. SOURCE is the folder api/openapi-spec/v3 of the Go module k8s.io/kubernetes.
The schemas are strict: a field that Kubernetes doesn't know is an error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

EITHER = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
REFERENCE = "#/components/schemas/"


def strict(node: Any, definitions: dict[str, Any], above: frozenset[str] = frozenset()) -> Any:
    """Inlines references and forbids unknown fields; types that contain themselves stay unchecked inside."""
    if isinstance(node, list):
        return [strict(each, definitions, above) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].removeprefix(REFERENCE)
        return {} if name in above else strict(definitions[name], definitions, above | {name})
    # The OpenAPI generator wraps a reference with a default or description in `allOf`.
    if len(node.get("allOf", [])) == 1:
        return strict(node["allOf"][0], definitions, above)
    if node.get("x-kubernetes-int-or-string") or node.get("format") == "int-or-string":
        return EITHER
    kept = {key: value for key, value in node.items() if key not in ("default", "description", "properties")}
    closed = {key: strict(value, definitions, above) for key, value in kept.items() if not key.startswith("x-")}
    if "properties" in node:
        required = node.get("required", [])
        closed["properties"] = {
            name: field(strict(value, definitions, above), name in required)
            for name, value in node["properties"].items()
        }
        closed.setdefault("additionalProperties", False)
    return closed


def field(schema: dict[str, Any], required: bool) -> dict[str, Any]:
    """A field's schema; Kubernetes accepts null for optional fields."""
    if required or not isinstance(schema.get("type"), str):
        return schema
    return schema | {"type": [schema["type"], "null"]}


def top_level(name: str, definitions: dict[str, Any], kind: dict[str, str]) -> dict[str, Any]:
    """The schema of a whole object, with its apiVersion and kind required."""
    schema: dict[str, Any] = strict(definitions[name], definitions, frozenset({name}))
    version = "/".join(part for part in (kind["group"], kind["version"]) if part)
    schema["properties"] |= {"apiVersion": {"const": version}, "kind": {"const": kind["kind"]}}
    schema["required"] = sorted({*schema.get("required", []), "apiVersion", "kind"})
    return schema


def main() -> int:
    """Writes one file for each kind, with the name that kubeconform expects."""
    source, target = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    written = set()
    for file in sorted(source.glob("*_openapi.json")):
        definitions = json.loads(file.read_text()).get("components", {}).get("schemas", {})
        for name, definition in definitions.items():
            kinds = definition.get("x-kubernetes-group-version-kind", [])
            # Types that belong to several groups (DeleteOptions) are not objects of their own.
            if len(kinds) != 1 or "properties" not in definition:
                continue
            [kind] = kinds
            group = kind["group"].split(".")[0]
            path = target / f"{'-'.join(filter(None, (kind['kind'].lower(), group, kind['version'])))}.json"
            path.write_text(json.dumps(top_level(name, definitions, kind)))
            written.add(path)
    if not written:
        print(f"kubernetes_schemas.py: no OpenAPI files in {source}", file=sys.stderr)
        return 1
    print(f"{len(written)} schemas in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
