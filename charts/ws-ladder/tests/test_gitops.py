"""The examples for GitOps controllers: they leave alone what the operator changes during a run, and nothing else.

Run by `just chart-check`, with helm on the PATH.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import CHART, FANOUT, GATEWAY, render

Manifest = dict[str, Any]
# Where each kind of object has the field that the operator changes, and its value between runs.
FIELDS = {"Deployment": ("/spec/replicas", 0), "Job": ("/spec/suspend", True)}


def document(name: str) -> Manifest:
    """The only document of an example."""
    loaded: Manifest = yaml.safe_load((CHART / name).read_text())
    return loaded


def is_owned(manifest: Manifest) -> bool:
    """Whether the operator changes this object during a run: it is rendered at rest."""
    path, at_rest = FIELDS.get(manifest["kind"], ("", None))
    return bool(path) and manifest["spec"][path.rsplit("/", 1)[1]] == at_rest


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Whether a label selector of one requirement matches: `key=value` or `key in (a, b)`."""
    if found := re.fullmatch(r"(\S+) in \(([^)]*)\)", selector):
        return labels.get(found[1]) in [value.strip() for value in found[2].split(",")]
    key, _, value = selector.partition("=")
    assert value, f"the test reads no selector such as {selector!r}"
    return labels.get(key) == value


def flux_leaves_alone(manifest: Manifest) -> list[str]:
    """The paths of an object that Flux' drift detection ignores."""
    rules = document("flux/release.yaml")["spec"]["driftDetection"]["ignore"]
    return [
        path
        for rule in rules
        if rule["target"]["kind"] == manifest["kind"]
        and selects(rule["target"]["labelSelector"], manifest["metadata"]["labels"])
        for path in rule["paths"]
    ]


@pytest.mark.parametrize("values", [[], FANOUT, GATEWAY], ids=["default", "companions", "inference"])
def test_flux_ignores_what_the_operator_changes_and_nothing_else(values: list[str]) -> None:
    manifests = render(*values)
    owned = [manifest for manifest in manifests if is_owned(manifest)]
    assert {manifest["kind"] for manifest in owned} == set(FIELDS)
    for manifest in manifests:
        expected = [FIELDS[manifest["kind"]][0]] if is_owned(manifest) else []
        assert flux_leaves_alone(manifest) == expected, manifest["metadata"]["name"]


def test_the_examples_have_a_gateway_and_companions_so_that_all_roles_are_compared() -> None:
    roles = {
        manifest["metadata"]["labels"]["app.kubernetes.io/component"]
        for values in (FANOUT, GATEWAY)
        for manifest in render(*values)
        if is_owned(manifest)
    }
    assert roles == {"service", "companion", "inference", "worker"}


def test_argo_cd_ignores_the_same_fields_and_does_not_reset_them_when_it_syncs() -> None:
    spec = document("argocd/application.yaml")["spec"]
    ignored = {(rule["group"], rule["kind"]): rule["jsonPointers"] for rule in spec["ignoreDifferences"]}
    assert ignored == {("apps", "Deployment"): ["/spec/replicas"], ("batch", "Job"): ["/spec/suspend"]}
    assert "RespectIgnoreDifferences=true" in spec["syncPolicy"]["syncOptions"]


def test_the_example_for_argo_cd_renders_the_same_each_time_and_creates_no_secret(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(document("argocd/application.yaml")["spec"]["source"]["helm"]["valuesObject"]))
    first, second = (render("-f", str(values)) for _ in range(2))
    assert first == second
    kinds = {manifest["kind"] for manifest in first}
    assert "Job" in kinds
    assert "Secret" not in kinds
