"""A second node is lost, cut off or frozen in the middle of a trial: the trial is repeated when the node is back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from cluster import name_of
from nodes import FIRST_NODE, HOSTNAME, FurtherNode, on
from release import HELM_4, Release, Values
from repeated import RUN_SECONDS, is_repeated

TIER = 20
# Longer than the ten seconds after which the operator takes silence for a loss.
WINDOW_SECONDS = 16
INTERRUPTED_SECONDS = 60
SILENT_WORKER = "no sign of life for 10 s of worker"


@pytest.fixture(scope="module")
def second(own_cluster: Path) -> Iterator[FurtherNode]:
    """A second node, which is Ready."""
    assert own_cluster.is_dir()
    node = FurtherNode(2)
    node.join()
    yield node
    node.remove()


@pytest.fixture
def two_nodes(release: Release, second: FurtherNode) -> Iterator[FurtherNode]:
    """The second node, which is there and Ready again after the test."""
    yield second
    second.join()
    release.until_restored()


def values(run: str, *, service: str = FIRST_NODE, worker: str = FIRST_NODE) -> Values:
    """A run of one trial whose pods are on these nodes."""
    ladder = {
        "workload": "throughput",
        "variant": "batch",
        "tiers": [TIER],
        "load": {"model": "open", "rate_per_second": 200},
        "service_env": {"DELIVERY": "batch"},
        "objectives": [{"figure": "failed_share", "at_most": 0}],
    }
    return {
        "run": {"id": run},
        "plan": {"window_seconds": WINDOW_SECONDS, "ladders": [ladder]},
        "scheduling": {"service": on(service), "worker": on(worker)},
    }


def until_interrupted(release: Release, node: FurtherNode, what: str) -> Any:
    """Waits until the status says that the trial was interrupted, and by what on which node."""

    def is_told(status: Any) -> bool:
        description = (status["last_problem"] or {}).get("description", "")
        return status["interruptions"] >= 1 and what in description and f"on {node.name}" in description

    return release.until_status(f"an interruption by {what} on {node.name}", is_told, INTERRUPTED_SECONDS)


def interrupt(release: Release, given: Values, node: FurtherNode, disturb: Callable[[], None], what: str) -> None:
    """Starts a run and, under load, disturbs a node. Waits until the trial is interrupted by what this does."""
    release.upgrade(given)
    release.until_loaded(given["run"]["id"], TIER)
    disturb()
    until_interrupted(release, node, what)


def test_workers_run_apart_from_the_service_where_there_are_two_nodes(
    release: Release, tmp_path: Path, two_nodes: FurtherNode
) -> None:
    apart = values("apart")
    del apart["scheduling"]["worker"]
    release.upgrade({**apart, "plan": {**apart["plan"], "window_seconds": 2}, "isolation": {"require": "node"}})
    release.until_run_ends("apart", RUN_SECONDS)
    release.until_restored()
    bundle = Bundle(release.fetch("apart", tmp_path))
    assert bundle.valid() == 1, bundle.run()["trials"]
    [trial] = bundle.trials()
    nodes = {pod["role"]: pod["node"] for pod in read(trial / "result.json")["pods"]}
    assert nodes == {"service": FIRST_NODE, "worker": two_nodes.name}


def test_a_power_cut_of_the_workers_node_costs_its_trial_which_is_repeated_when_the_node_is_back(
    release: Release, tmp_path: Path, two_nodes: FurtherNode
) -> None:
    interrupt(release, values("power-cut", worker=two_nodes.name), two_nodes, two_nodes.kill, SILENT_WORKER)
    two_nodes.join()
    is_repeated(release, "power-cut", tmp_path)


@pytest.mark.long
def test_a_service_that_is_cut_off_from_the_operator_is_no_result(
    release: Release, tmp_path: Path, two_nodes: FurtherNode
) -> None:
    interrupt(release, values("cut-off", service=two_nodes.name), two_nodes, two_nodes.cut, "the service")
    two_nodes.mend()
    is_repeated(release, "cut-off", tmp_path)


@pytest.mark.long
def test_frozen_workers_that_come_back_have_no_part_in_the_repeated_trial(
    release: Release, tmp_path: Path, two_nodes: FurtherNode
) -> None:
    interrupt(release, values("frozen", worker=two_nodes.name), two_nodes, two_nodes.freeze, SILENT_WORKER)
    two_nodes.thaw()
    is_repeated(release, "frozen", tmp_path)


@pytest.mark.long
def test_a_drain_waits_for_the_run_where_the_chart_has_a_disruption_budget(
    release: Release, tmp_path: Path, two_nodes: FurtherNode
) -> None:
    cluster = release.cluster
    release.upgrade({**values("drained", worker=two_nodes.name), "podDisruptionBudget": {"enabled": True}})
    release.until_trial("drained", TIER)
    drain = cluster.kubectl_command("drain", two_nodes.name, "--ignore-daemonsets", "--delete-emptydir-data")
    refused = cluster.attempt(*drain, "--timeout=5s")
    assert refused.returncode != 0
    assert "violate the pod's disruption budget" in refused.stderr, refused.stderr
    try:
        release.until_run_ends("drained", RUN_SECONDS)
        release.until_restored()
        assert Bundle(release.fetch("drained", tmp_path)).attempts() == [1], "the drain disturbed nothing"
        cluster.run(*drain, "--timeout=60s")
        left = [pod for pod in cluster.list("pods") if pod["spec"].get("nodeName") == two_nodes.name]
        assert not left, [name_of(pod) for pod in left]
    finally:
        cluster.kubectl("uncordon", two_nodes.name)


@pytest.mark.long
def test_workers_of_a_node_that_is_gone_for_good_run_elsewhere(
    release: Release, tmp_path: Path, two_nodes: FurtherNode
) -> None:
    # Rather on the second node, but not only there.
    preferred = {"weight": 100, "preference": {"matchExpressions": [expression(two_nodes.name)]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    with_affinity = values("gone")
    with_affinity["scheduling"]["worker"] = {"affinity": affinity}
    interrupt(release, with_affinity, two_nodes, two_nodes.kill, SILENT_WORKER)
    release.cluster.kubectl("delete", "node", two_nodes.name)
    is_repeated(release, "gone", tmp_path)


@pytest.fixture
def away(release: Release, two_nodes: FurtherNode, tmp_path: Path) -> Iterator[Release]:
    """A release of its own whose operator and volume are on the second node."""
    assert release.ready_pod("operator")
    away = Release(release.cluster, "away", HELM_4, tmp_path)
    away.install({"scheduling": {"operator": on(two_nodes.name)}})
    yield away
    away.uninstall()
    # Its volume is in a folder that outlives the node.
    away.cluster.kubectl("delete", "persistentvolumeclaims", "--selector", away.instance)


@pytest.mark.long
def test_an_operator_whose_node_is_lost_goes_on_when_it_is_back(
    away: Release, tmp_path: Path, two_nodes: FurtherNode
) -> None:
    lost = values("operator-lost")
    lost["scheduling"]["operator"] = on(two_nodes.name)
    away.upgrade(lost)
    away.until_loaded("operator-lost", TIER)
    two_nodes.kill()
    two_nodes.join()
    is_repeated(away, "operator-lost", tmp_path)


def expression(node: str) -> dict[str, object]:
    return {"key": HOSTNAME, "operator": "In", "values": [node]}
