"""The table of pods shows what decides whether their figures can be trusted."""

from __future__ import annotations

from dataclasses import replace

from bench_format.schemas import Pod, PodRole

from ws_ladder_analysis.cells import Tone
from ws_ladder_analysis.load import Bundle
from ws_ladder_analysis.pods import pods

SERVICE = Pod(
    name="wsl-wse-server-abc",
    role=PodRole.SERVICE,
    worker=None,
    node="node-a",
    qos_class="Guaranteed",
    cpus_allowed="0-1",
    image="local/wse-server:1",
    image_digest="local/wse-server@sha256:0123456789abcdef",
    restarts=0,
    limits={"cpu": "2", "memory": "256Mi"},
    throttled_periods=3,
)


def test_without_pods_there_is_no_table(example_bundle: Bundle) -> None:
    assert pods(trial.result for trial in example_bundle.trials if trial.result is not None) is None


def test_companions_are_distinguished_by_kind(example_bundle: Bundle) -> None:
    result = next(trial.result for trial in example_bundle.trials if trial.result is not None)
    kinds = [replace(SERVICE, name=name, role=PodRole.COMPANION, companion=name) for name in ("redis", "publisher")]
    table = pods([replace(result, pods=[SERVICE, *kinds])])
    assert table is not None
    assert [row[0].text for row in table.rows] == ["service", "companion redis", "companion publisher"]


def test_pods_that_differ_only_by_name_share_a_row_and_their_throttling_is_summed(example_bundle: Bundle) -> None:
    result = next(trial.result for trial in example_bundle.trials if trial.result is not None)
    other = replace(SERVICE, name="wsl-wse-server-xyz", throttled_periods=4)
    worker = replace(SERVICE, name="w-0", role=PodRole.WORKER, worker=0, qos_class="Burstable", restarts=1)
    table = pods([replace(result, pods=[SERVICE, worker]), replace(result, pods=[other])])
    assert table is not None
    service_row, worker_row = table.rows
    texts = [cell.text for cell in service_row]
    assert texts == ["service", "2", "node-a", "Guaranteed", "0-1", "local/wse-server:1", "0123456789ab", "0", "7"]
    assert (worker_row[3].tone, worker_row[7].tone) == (Tone.WARN, Tone.WARN)
