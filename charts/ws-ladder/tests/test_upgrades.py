"""Compares two renderings for what an upgrade can't change: a Job's template and a Deployment's selector.

Run by `just chart-check`, with helm on the PATH. The suites beside this file test single renderings.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHART = Path(__file__).resolve().parents[1]
TIER = "plan.ladders[0].workload=throughput,plan.ladders[0].load.model=closed,plan.ladders[0].tiers[0]=7"
TOKEN = "auth.coordinatorToken=" + "t" * 32
# Each changes another part of the rendered objects.
CHANGES = [
    "",
    "run.id=first",
    "run.id=second",
    "plan.workers=2",
    "plan.repeats=9",
    "plan.name=other",
    "plan.cpu.worker.cpus=2",
    "plan.cpu.service.cpus=2",
    "plan.services[0]=wse-server",
    TIER,
    f"{TIER},plan.ladders[0].variant=a",
    f"{TIER},plan.ladders[0].service_env.A=x",
    f"{TIER},plan.ladders[0].service_env.A=y",
    "image.registry=elsewhere",
    "image.pullPolicy=Always",
    "image.pullSecrets[0].name=mine",
    "protocols.wse.image.tag=other",
    "protocols.wse.resources.memory=1Gi",
    "protocols.wse.env.A=x",
    "services.wse-server.image.tag=other",
    "services.wse-server.env.A=x",
    "operator.image.tag=other",
    "operator.resources.memory=1Gi",
    "auth.existingSecret=mine",
    TOKEN,
    "auth.linkSecret=" + "l" * 32,
    "scheduling.worker.nodeSelector.a=b",
    "scheduling.service.nodeSelector.a=b",
    "job.ttlSecondsAfterFinished=0",
]


def render(values: str, chart: Path = CHART, release: str = "bench") -> dict[str, str]:
    """Renders the chart; returns the text of each object by `Kind/name`."""
    command = ["helm", "template", release, str(chart), "--namespace", "lab"]
    if values:
        command += ["--set", values]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    objects = {}
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        kind = re.search(r"^kind: (.*)$", document, re.MULTILINE)
        name = re.search(r'^  name: "?([^"\n]*)"?$', document, re.MULTILINE)
        if kind and name:
            objects[f"{kind[1]}/{name[1]}"] = document
    return objects


def of_kind(kind: str, objects: dict[str, str]) -> dict[str, str]:
    """The objects of one kind by name."""
    return {name.removeprefix(f"{kind}/"): text for name, text in objects.items() if name.startswith(f"{kind}/")}


def spec(text: str) -> str:
    """The `spec` of an object, without its metadata."""
    return text[text.index("\nspec:") :]


def selector(text: str) -> str:
    """The text of a Deployment's selector."""
    return text[text.index("  selector:") : text.index("  template:")]


@pytest.fixture(scope="module")
def rendered() -> dict[str, dict[str, str]]:
    """The rendered objects for each change."""
    return {values: render(values) for values in CHANGES}


def test_no_upgrade_changes_a_job_that_keeps_its_name(rendered: dict[str, dict[str, str]]) -> None:
    by_name: dict[str, tuple[str, str]] = {}
    for values, objects in rendered.items():
        for name, text in of_kind("Job", objects).items():
            before, before_values = by_name.setdefault(name, (spec(text), values))
            assert before == spec(text), f"{name}: {before_values!r} against {values!r}"
    assert len(by_name) > len(CHANGES)


def test_no_upgrade_changes_the_selector_of_a_deployment_that_keeps_its_name(
    rendered: dict[str, dict[str, str]],
) -> None:
    by_name: dict[str, str] = {}
    for objects in rendered.values():
        for name, text in of_kind("Deployment", objects).items():
            assert by_name.setdefault(name, selector(text)) == selector(text), name
    assert len(by_name) > 3


def test_another_run_has_jobs_of_its_own(rendered: dict[str, dict[str, str]]) -> None:
    names = [set(of_kind("Job", rendered[values])) for values in ("", "run.id=first", "run.id=second")]
    # Two for each of four tiers.
    assert [len(each) for each in names] == [8, 8, 8]
    assert len(set.union(*names)) == 24


@pytest.mark.parametrize(
    "values", ["plan.repeats=9", "operator.resources.memory=1Gi", "services.wse-server.image.tag=other"]
)
def test_changes_that_do_not_affect_pods_keep_a_runs_jobs(rendered: dict[str, dict[str, str]], values: str) -> None:
    assert of_kind("Job", rendered[""]) == of_kind("Job", rendered[values])


def test_releases_with_long_names_never_share_an_object_name() -> None:
    long = "a-release-whose-name-has-all-fifty-three-characters-"
    first, second = (render("", release=long + last) for last in "xy")
    assert len(first) == len(second) > 10
    assert not first.keys() & second.keys()


def test_changed_inputs_restart_the_operator(rendered: dict[str, dict[str, str]]) -> None:
    def annotation(values: str) -> str:
        found = re.search(r"ws-ladder.dev/config: .*", rendered[values]["Deployment/bench-ws-ladder-operator"])
        assert found
        return found[0]

    changed = ["", "run.id=first", "run.id=second", "plan.repeats=9", "plan.name=other", TOKEN]
    assert len({annotation(values) for values in changed}) == len(changed)
    assert annotation("") == annotation("operator.resources.memory=1Gi")


def test_a_new_version_of_the_chart_changes_no_pod(rendered: dict[str, dict[str, str]], tmp_path: Path) -> None:
    newer = tmp_path / "ws-ladder"
    shutil.copytree(CHART, newer)
    file = newer / "Chart.yaml"
    file.write_text(re.sub(r"^version: .*$", "version: 99.9.9", file.read_text(), flags=re.MULTILINE))
    before, after = rendered[""], render("", chart=newer)
    assert "ws-ladder-99.9.9" in "".join(after.values())
    assert before.keys() == after.keys()
    for name in before:
        if name.startswith(("Job/", "Deployment/")):
            assert spec(before[name]) == spec(after[name]), name


def test_generated_secrets_differ_in_every_rendering() -> None:
    found = [re.findall(r'"([A-Za-z0-9+/=]{64})"', render("")["Secret/bench-ws-ladder"]) for _ in range(2)]
    assert len({secret for each in found for secret in each}) == 6
