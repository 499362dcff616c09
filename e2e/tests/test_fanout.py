"""Fan-out between two instances in separate pods: one publishes, the other has the subscribers. They are connected by
the cluster link, or by Redis in a third pod, which is killed once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from cluster import Object, is_ready
from kill import kill_container
from release import Release
from waiting import until

WORKERS = 2
RATE = 100
CLUSTER, REDIS = "wse-server-fanout-cluster", "wse-server-fanout-redis"
COMPANIONS = {CLUSTER: ["publisher"], REDIS: ["publisher", "redis"]}
MODES = {CLUSTER: "cluster", REDIS: "pubsub"}
REDIS_TIER = 12


def ladder(service: str, tiers: list[int], window_seconds: float) -> dict[str, Any]:
    """A ladder of one service with an open load."""
    return {
        "workload": service.removeprefix("wse-server-"),
        "variant": "paced",
        "services": [service],
        "tiers": tiers,
        "window_seconds": window_seconds,
        "load": {"model": "open", "rate_per_second": RATE},
        "service_env": {"RATE": str(RATE)},
        "objectives": [{"figure": "failed_share", "at_most": 0}],
    }


# The window of the Redis ladder is long enough to kill Redis in its middle.
PLAN = {"services": [CLUSTER, REDIS], "ladders": [ladder(CLUSTER, [8], 2), ladder(REDIS, [REDIS_TIER], 6)]}


@dataclass
class Climbed:
    """A finished run with its observations."""

    release: Release
    bundle: Bundle
    status: Any

    def result(self, service: str) -> Any:
        """The only result of a service."""
        return read(self.trial(service) / "result.json")

    def trial(self, service: str) -> Path:
        """The folder of a service's only trial."""
        [trial] = [trial for trial in self.bundle.trials() if f"/trials/{service}/" in str(trial)]
        return trial


@pytest.fixture(scope="module")
def climbed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Climbed:
    """Climbs the run `fanout` and kills Redis in the middle of its trial."""
    release.upgrade({"run": {"id": "fanout"}, "plan": PLAN})
    release.until_trial("fanout", REDIS_TIER)
    kill_container(release.cluster, ready_companion(release, "redis"), "companion")
    status = release.until_run_ends("fanout")
    release.until_restored()
    return Climbed(release, Bundle(release.fetch("fanout", tmp_path_factory.mktemp("fanout"))), status)


def ready_companion(release: Release, name: str) -> Object:
    """Waits for a Ready pod of a companion and returns it."""
    selector = f"{release.component('companion')},ws-ladder.dev/companion={name}"
    ready = lambda: next(filter(is_ready, release.cluster.list("pods", selector)), None)  # noqa: E731
    return until(f"a ready pod of the companion {name}", ready, 30, release.describe)


@pytest.mark.parametrize("service", [CLUSTER, REDIS])
def test_every_message_reaches_every_subscriber_of_the_other_instance(climbed: Climbed, service: str) -> None:
    result = climbed.result(service)
    assert result["validity"] == {"state": "valid"}
    assert result["verdict"]["passed"], result["figures"]
    messages = result["messages"]
    assert messages["delivered"] == messages["due"] > RATE * result["trial"]["tier"]
    assert all(equation["left"] == equation["right"] for equation in result["books"]["equations"])
    assert result["service"]["after"]["publisher"]["mode"] == MODES[service]


@pytest.mark.parametrize("service", [CLUSTER, REDIS])
def test_each_instance_is_a_pod_of_its_own_in_the_evidence(climbed: Climbed, service: str) -> None:
    pods = climbed.result(service)["pods"]
    assert sorted(pod["companion"] for pod in pods if pod["role"] == "companion") == COMPANIONS[service]
    assert [pod["role"] for pod in pods].count("service") == 1
    assert [pod["role"] for pod in pods].count("worker") == WORKERS
    assert len({pod["name"] for pod in pods}) == len(pods)
    assert all(pod["qos_class"] == "Guaranteed" and pod["image_digest"] for pod in pods)
    for name in COMPANIONS[service]:
        assert (climbed.trial(service) / f"companion-{name}.log").exists()
        assert name in climbed.bundle.run()["versions"]


@pytest.mark.parametrize("service", [CLUSTER, REDIS])
def test_the_services_cpu_is_the_sum_over_its_pods(climbed: Climbed, service: str) -> None:
    result = climbed.result(service)
    start, end = result["service"]["window_start"], result["service"]["window_end"]
    used = {name: end["companions"][name]["cpu_ns"] - start["companions"][name]["cpu_ns"] for name in end["companions"]}
    assert sorted(used) == COMPANIONS[service]
    assert all(ns > 0 for ns in used.values())
    own = end["cpu_ns"] - start["cpu_ns"]
    assert result["figures"]["service_cpu_seconds"] == pytest.approx((own + sum(used.values())) / 1e9)


def test_a_companion_killed_during_a_trial_costs_only_that_trial(climbed: Climbed) -> None:
    assert (climbed.result(CLUSTER)["attempt"], climbed.result(REDIS)["attempt"]) == (1, 2)
    assert climbed.status["interruptions"] == 1
    assert "--redis-" in climbed.status["last_problem"]["description"]


def test_all_instances_and_the_broker_are_scaled_back(climbed: Climbed) -> None:
    deployments = climbed.release.cluster.list("deployments", climbed.release.component("companion"))
    assert len(deployments) == sum(map(len, COMPANIONS.values()))
    assert [deployment["spec"]["replicas"] for deployment in deployments] == [0] * len(deployments)
    assert climbed.release.is_restored()
