"""compose.yaml: its content, and the bundles that its profiles leave."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from containers import ROOT

PROFILES = ["single", "multi", "wse"]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
PLAN = """\
schema: 1
name: brief
why: does what compose.yaml starts work together, and is everything accounted for?
seed: 40
services: [{service}]
warmup_seconds: 1
window_seconds: 4
drain_seconds: 10
# About counting, not about time: a busy machine may be late.
validity: {{ delay_p99_ms: 5000, worker_cpu_share: 1, start_skew_ms: 5000 }}
ladders:
  - {ladder}
"""
SESSIONS = (
    "{ workload: sessions, tiers: [20], load: { model: sessions, ramp_seconds: 1, spread_ms: 1000 }, "
    "message: { format: pcm, size_bytes: 640 } }"
)
THROUGHPUT = "{ workload: throughput, tiers: [10], load: { model: open, rate_per_second: 2000 } }"


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_capability_a_read_only_root_and_a_profile(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["profiles"]) <= set(PROFILES)


@pytest.mark.parametrize("name", SERVICES)
def test_every_listener_binds_to_loopback(name: str) -> None:
    service = SERVICES[name]
    assert service["network_mode"] == "host"
    # The ladder has no port.
    if not name.startswith("ladder"):
        command = " ".join(service.get("command", []))
        assert service.get("environment", {}).get("HOST") == "127.0.0.1" or "--host 127.0.0.1" in command


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_one_of_ours_with_its_own_dockerfile(name: str) -> None:
    service = SERVICES[name]
    values = (ROOT / "charts/ws-ladder/values.yaml").read_text()
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    registry = re.search(r"^  registry: (.*)$", values, re.MULTILINE)
    assert version
    assert registry
    prefix, image, tag = re.fullmatch(r"(.*)/(.*):([^:]*:[^:]*)", service["image"]).groups()  # type: ignore[union-attr]
    assert prefix == f"${{REGISTRY:-{registry[1]}}}"
    assert tag == f"${{TAG:-{version[1]}}}"
    listed = subprocess.run(["tools/images", "--list"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert image.replace("${GATEWAY:-rust-axum}", "rust-axum") in listed.stdout.split()
    dockerfile = service["build"]["dockerfile"].replace("${GATEWAY:-rust-axum}", "rust-axum")
    assert f" AS {service['build']['target']}" in (ROOT / dockerfile).read_text()


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def climb(profile: str, results: Path, service: str, ladder: str) -> dict[str, Any]:
    """Climbs a short plan with a profile; returns the bundle's `run.json`, with all trials' results in `results`."""
    (results / "brief.yaml").write_text(PLAN.format(service=service, ladder=ladder))
    results.chmod(0o777)
    names = ("PORT", "METRICS_PORT", "EVIDENCE_PORT", "INFERENCE_PORT")
    settings = dict(zip(names, free_ports(len(names)), strict=True)) | {
        "RESULTS": str(results),
        "PLAN": "/results/brief.yaml",
        "LADDER_CPUS": "0,1",
    }
    compose = [str(ROOT / ".venv/bin/podman-compose"), "--file", str(ROOT / "compose.yaml"), "--profile", profile]
    try:
        up = subprocess.run(
            [*compose, "up", "--no-build", "--exit-code-from", f"ladder-{profile}"],
            cwd=ROOT,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        subprocess.run([*compose, "down", "--timeout", "5"], cwd=ROOT, env=os.environ | settings, check=False)
    assert up.returncode == 0, up.stdout + up.stderr
    [bundle] = [folder for folder in results.iterdir() if (folder / "run.json").is_file()]
    run: dict[str, Any] = json.loads((bundle / "run.json").read_text())
    run["results"] = [json.loads(file.read_text()) for file in bundle.glob("trials/**/result.json")]
    return run


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("profile", "service", "ladder"),
    [("single", "rust-axum", SESSIONS), ("multi", "rust-axum", SESSIONS), ("wse", "wse-server", THROUGHPUT)],
)
def test_a_profile_leaves_a_bundle_with_the_services_cpu_and_memory(
    tmp_path: Path, profile: str, service: str, ladder: str
) -> None:
    run = climb(profile, tmp_path, service, ladder)
    [result] = run["results"]
    assert [entry["state"].get("validity", {}).get("state") for entry in run["trials"]] == ["valid"], run["trials"]
    assert result["messages"]["delivered"] == result["messages"]["sent"] > 0
    assert all(equation["left"] == equation["right"] for equation in result["books"]["equations"])
    assert result["figures"]["service_cpu_seconds"] > 0
    assert result["figures"]["service_rss_bytes"] > 0
