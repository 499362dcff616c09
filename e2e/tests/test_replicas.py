"""A service of two pods, loaded by as many workers as the tier takes: all counts are those of one service."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from cluster import name_of
from kill import kill_container
from release import Release

REPLICAS = 2
# By ladder. The window of the second one is long enough to kill a pod in its middle.
TIERS = {"calm": 8, "killed": 12}
WINDOW_SECONDS = {"calm": 2, "killed": 6}
# Three workers would do for twelve connections, but each pod gets as many.
CONNECTIONS_PER_WORKER = 4
WORKERS = {"calm": 2, "killed": 4}
LADDERS = [
    {
        "workload": "throughput",
        "variant": variant,
        "tiers": [tier],
        "replicas": REPLICAS,
        "window_seconds": WINDOW_SECONDS[variant],
        "load": {"model": "open", "rate_per_second": 100},
        "service_env": {"DELIVERY": "batch"},
        "objectives": [{"figure": "failed_share", "at_most": 0}],
    }
    for variant, tier in TIERS.items()
]


@dataclass
class Climbed:
    """A finished run with its observations."""

    release: Release
    bundle: Bundle
    status: Any
    killed: str

    def trial(self, variant: str) -> Path:
        """The folder of a ladder's only trial."""
        [trial] = [trial for trial in self.bundle.trials() if f"/{variant}/" in str(trial)]
        return trial

    def result(self, variant: str) -> Any:
        """The result of a ladder's only trial."""
        return read(self.trial(variant) / "result.json")


@pytest.fixture(scope="module")
def climbed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Climbed:
    """Climbs the run `replicas` and kills one of the two pods in the middle of the second ladder's trial."""
    workers = {"workers": 1, "connections_per_worker": CONNECTIONS_PER_WORKER, "cpu": {"worker": {"cpus": 0.1}}}
    release.upgrade({"run": {"id": "replicas"}, "plan": {"ladders": LADDERS, **workers}})
    release.until_trial("replicas", TIERS["killed"])
    pod = max(release.pods("service"), key=name_of)
    kill_container(release.cluster, pod, "service")
    status = release.until_run_ends("replicas")
    release.until_restored()
    bundle = Bundle(release.fetch("replicas", tmp_path_factory.mktemp("replicas")))
    return Climbed(release, bundle, status, name_of(pod))


@pytest.mark.parametrize("variant", TIERS)
def test_the_books_of_both_pods_balance_with_those_of_the_workers(climbed: Climbed, variant: str) -> None:
    result = climbed.result(variant)
    assert result["validity"] == {"state": "valid"}
    assert result["verdict"]["passed"], result["figures"]
    assert result["connections"]["open"] == TIERS[variant]
    assert result["messages"]["delivered"] == result["messages"]["sent"] > 0
    assert all(equation["left"] == equation["right"] for equation in result["books"]["equations"])
    connections = result["books"]["connections"]
    assert connections["compared"] >= TIERS[variant]
    assert connections["mismatched"] == 0, connections["examples"]


def test_both_pods_are_in_the_evidence_with_their_logs(climbed: Climbed) -> None:
    pods = climbed.result("calm")["pods"]
    of_service = [pod for pod in pods if pod["role"] == "service"]
    assert len({pod["name"] for pod in of_service}) == REPLICAS
    assert all(pod["qos_class"] == "Guaranteed" and pod["image_digest"] for pod in of_service)
    trial = climbed.trial("calm")
    assert (trial / "service.log").exists()
    assert (trial / "service-1.log").exists()


@pytest.mark.parametrize("variant", TIERS)
def test_each_tier_has_as_many_workers_as_its_connections_take(climbed: Climbed, variant: str) -> None:
    pods = climbed.result(variant)["pods"]
    assert [pod["role"] for pod in pods].count("worker") == WORKERS[variant]
    workers = [read(path) for path in (climbed.trial(variant) / "workers").glob("*.json")]
    assert sorted(worker["connections"]["open"] for worker in workers) == [
        TIERS[variant] // WORKERS[variant] for _ in workers
    ]


def test_each_pod_has_had_load_and_the_services_cpu_is_their_sum(climbed: Climbed) -> None:
    result = climbed.result("calm")
    start, end = result["service"]["window_start"], result["service"]["window_end"]
    used = {name: end["replicas"][name]["cpu_ns"] - start["replicas"][name]["cpu_ns"] for name in end["replicas"]}
    assert sorted(used) == sorted(pod["name"] for pod in result["pods"] if pod["role"] == "service")
    assert all(ns > 0 for ns in used.values()), used
    assert result["figures"]["service_cpu_seconds"] == pytest.approx((end["cpu_ns"] - start["cpu_ns"]) / 1e9)


def test_one_pod_killed_during_a_trial_costs_only_that_trial(climbed: Climbed) -> None:
    assert (climbed.result("calm")["attempt"], climbed.result("killed")["attempt"]) == (1, 2)
    assert climbed.status["interruptions"] == 1
    assert climbed.killed in climbed.status["last_problem"]["description"]


def test_the_deployment_is_scaled_back(climbed: Climbed) -> None:
    deployments = climbed.release.cluster.list("deployments", climbed.release.component("service"))
    assert [deployment["spec"]["replicas"] for deployment in deployments] == [0] * len(deployments)
    assert climbed.release.is_restored()
