"""Each query of the Grafana dashboard is executed by a real Prometheus that watched a run."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus import RATE_INTERVAL, Prometheus
from release import CHART, Release
from waiting import until

# Long enough for Prometheus to find the pods, which takes it up to five seconds, and to read each several times.
PLAN = {
    "warmup_seconds": 7,
    "window_seconds": 8,
    "ladders": [
        {
            "workload": "ping-latency",
            "tiers": [10],
            "load": {"model": "open", "rate_per_second": 200},
            "objectives": [
                {"figure": {"percentile_ms": {"histogram": "response", "percentile": 50}}, "at_most": 60000}
            ],
        }
    ],
}
# Counters by reason, which exist only once there was one.
ONLY_WHEN_IT_HAPPENED = {"service_messages_dropped_total", "service_connections_rejected_total"}
# The kubelet of a node inside a namespace reports no containers; Prometheus must accept these queries all the same.
OF_CONTAINERS = {
    "container_cpu_usage_seconds_total",
    "container_cpu_cfs_periods_total",
    "container_memory_working_set_bytes",
}
# The application counts what is delivered to it; pings are answered before it.
NOT_OF_PINGS = {"application_messages_delivered_total"}


def queries() -> list[tuple[str, str]]:
    """Panel and query of each target of the dashboard."""
    dashboard = json.loads((CHART / "files/dashboard.json").read_text())
    return [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def watched(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that watched the run `dashboard` to its end."""
    with Prometheus(release.cluster, tmp_path_factory.mktemp("prometheus")) as prometheus:
        release.upgrade({"run": {"id": "dashboard"}, "plan": PLAN})
        release.until_run_ends("dashboard")
        release.until_restored()
        # The next scrape has the figures of the trial that ended last.
        is_scraped = lambda: prometheus.series("ladder_trial_delivered_per_second")  # noqa: E731
        until("Prometheus to read the ended trial", is_scraped, 60, prometheus.log)
        yield prometheus


@pytest.mark.parametrize(("panel", "query"), queries(), ids=[f"{title}: {query[:40]}" for title, query in queries()])
def test_a_query_of_the_dashboard_finds_what_it_shows(
    watched: Prometheus, release: Release, panel: str, query: str
) -> None:
    variables = {"$namespace": release.cluster.namespace, "$release": release.name, "$__rate_interval": RATE_INTERVAL}
    for name, value in variables.items():
        query = query.replace(name, value)
    series = watched.series(query)
    if not any(name in query for name in ONLY_WHEN_IT_HAPPENED | NOT_OF_PINGS | OF_CONTAINERS):
        assert series, f"{panel}: {query} has no data\n{watched.log()}\n{release.status()}"


def test_the_variables_find_the_release(watched: Prometheus, release: Release) -> None:
    [ready] = watched.series("ladder_ready")
    assert ready["metric"]["namespace"] == release.cluster.namespace
    assert ready["metric"]["app_kubernetes_io_instance"] == release.name
