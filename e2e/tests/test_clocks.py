"""The operator's clock is a minute and a half ahead of those of all other pods: every one of them is seen to be behind,
and what is measured across pods is right nevertheless.
"""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from cluster import name_of
from release import Release

ROOT = Path(__file__).resolve().parents[2]
AHEAD_SECONDS = 90
# Clocks of one kernel are the same; the rest is the time of round trips between throttled containers.
TOLERANCE_NS = 1e9
SERVICE = "wse-server-fanout-cluster"
RATE = 100
LADDER = {
    "workload": "fanout-cluster",
    "variant": "paced",
    "services": [SERVICE],
    "tiers": [8],
    "window_seconds": 2,
    "load": {"model": "open", "rate_per_second": RATE},
    "service_env": {"RATE": str(RATE)},
}
# A library that shifts the clock which a program reads, where the operator finds it.
MOUNTED = "/shifted-clock"
VARIABLES = {
    "LD_PRELOAD": f"{MOUNTED}/libfaketime.so.1",
    "FAKETIME": f"+{AHEAD_SECONDS}s",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
}


def library() -> bytes:
    """Debian's libfaketime, which is installed if it's missing."""
    subprocess.run([ROOT / "e2e/cluster/packages", "libfaketime"], check=True)
    files = subprocess.run(["dpkg", "-L", "libfaketime"], capture_output=True, text=True, check=True).stdout.split()
    return next(Path(file) for file in files if file.endswith("/libfaketime.so.1")).read_bytes()


def patch(release: Release, *, shifted: bool) -> None:
    """Gives the operator a clock that is ahead, or its own one again, and waits until it runs with it."""
    [operator] = release.cluster.list("deployments", release.component("operator"))
    gone = {} if shifted else {"$patch": "delete"}
    container = {
        "name": "operator",
        "env": [{"name": name, **({"value": value} if shifted else gone)} for name, value in VARIABLES.items()],
        "volumeMounts": [{"mountPath": MOUNTED, **({"name": "shifted-clock"} if shifted else gone)}],
    }
    volume = {"name": "shifted-clock", **({"configMap": {"name": "shifted-clock"}} if shifted else gone)}
    spec = {"template": {"spec": {"containers": [container], "volumes": [volume]}}}
    release.cluster.kubectl("patch", "deployment", name_of(operator), "--patch", json.dumps({"spec": spec}))
    release.cluster.kubectl("rollout", "status", f"deployment/{name_of(operator)}", "--timeout=100s", seconds=110)


@pytest.fixture
def ahead(release: Release) -> Iterator[Release]:
    """The release while its operator has a clock that is ahead."""
    encoded = base64.b64encode(library()).decode()
    metadata = {"name": "shifted-clock"}
    files = {"libfaketime.so.1": encoded}
    release.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": files})
    patch(release, shifted=True)
    yield release
    patch(release, shifted=False)
    release.cluster.kubectl("delete", "configmap", "shifted-clock")


def test_clocks_that_differ_between_pods_are_in_the_evidence_and_not_in_the_latencies(
    ahead: Release, tmp_path: Path
) -> None:
    ahead.upgrade({"run": {"id": "clocks"}, "plan": {"services": [SERVICE], "ladders": [LADDER]}})
    ahead.until_run_ends("clocks")
    ahead.until_restored()
    [trial] = Bundle(ahead.fetch("clocks", tmp_path)).trials()
    result: Any = read(trial / "result.json")
    assert result["validity"] == {"state": "valid"}
    offsets = [worker["clock_offset_ns"] for worker in result["workers"]]
    offsets.append(read(trial / "service.json")["publisher_clock"]["ahead_ns"])
    assert offsets == pytest.approx([-AHEAD_SECONDS * 1e9] * len(offsets), abs=TOLERANCE_NS)
    assert result["messages"]["delivered"] == result["messages"]["due"]
    # Without the correction there would be none in the window, or all would be a minute and a half old.
    [response] = result["percentiles"].values()
    assert 0 < response["p50"] < AHEAD_SECONDS / 2 * 1e9
