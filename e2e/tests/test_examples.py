"""Each example of values is installed as it is, with its nodes and volumes mapped to those of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from release import CHART, HELM_4, Release, Values

EXAMPLES = sorted(CHART.glob("values-*-example.yaml"))
# The operator's pod must start here; those of services only have to be accepted, because nothing starts them.
SMALL = {"cpu": "100m", "memory": "128Mi"}


def mapped(example: Path) -> Values:
    """The values of an example, for a cluster with one node and the images of this checkout."""
    values: Values = yaml.safe_load(example.read_text())
    for role in values.get("scheduling", {}).values():
        role.pop("nodeSelector", None)
    results = values.setdefault("results", {})
    results.pop("storageClass", None)
    results["size"] = "50Mi"
    values["operator"] = {"resources": SMALL}
    values["image"] = {"pullPolicy": "IfNotPresent"}
    return values


# The one that sets most runs always.
PARAMETERS = [
    pytest.param(example, id=example.name, marks=[] if "eks" in example.name else [pytest.mark.long])
    for example in EXAMPLES
]


@pytest.fixture(params=PARAMETERS)
def installed(request: pytest.FixtureRequest, release: Release, cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A release of an example beside the shared one, which stays as it is."""
    assert release.ready_pod("operator")
    own = Release(cluster, "example", HELM_4, tmp_path, base=None)
    own.install(mapped(request.param))
    yield own
    own.uninstall()


def test_an_example_installs_and_its_operator_is_ready(installed: Release) -> None:
    installed.ready_pod("operator")
    installed.until_status_prints("no run is requested")
    deployments = installed.cluster.list("deployments", installed.component("service"))
    assert deployments
    assert all(deployment["spec"]["replicas"] == 0 for deployment in deployments)
    jobs = installed.cluster.list("jobs", installed.instance)
    assert jobs
    assert all(job["spec"]["suspend"] for job in jobs)
