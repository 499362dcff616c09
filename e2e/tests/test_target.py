"""Services that the release did not start: a described plan is climbed against them.

One is the Service of another namespace, the other a Deployment that the operator may scale. Both are a chat of two
pods, which wants a token and a known user; these reach the workers by Secrets of the user.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from cluster import Cluster, Object, hardened_pod, is_ready
from release import HELM_4, Release
from waiting import until

# The agents of nodes mount a folder of the node, which the shared namespace refuses.
NAMESPACE = "ws-ladder-e2e-target"
SHOP = "ws-ladder-e2e-shop"
IMAGE = "ghcr.io/ws-ladder/python-fastapi:0.1.0"
PORT = 3000
LABELS = {"app": "chat"}
REPLICAS = 2
TOKEN = "s3cret-of-the-shop"
USERS = "user\nann\nbob\n"
APP = f"""
from fastapi import FastAPI, WebSocket, WebSocketDisconnect

app = FastAPI()

@app.websocket("/chat")
async def chat(socket: WebSocket) -> None:
    known = socket.headers.get("authorization") == "Bearer {TOKEN}"
    if not known or socket.headers.get("x-user") not in ("ann", "bob"):
        await socket.close()
        return
    await socket.accept()
    try:
        while True:
            await socket.send_text(await socket.receive_text())
    except WebSocketDisconnect:
        pass
"""
TIER = 10
RATE = 100
WINDOW_SECONDS = 5
VALUES: dict[str, Any] = {
    "run": {"id": "first"},
    "nodeEvidence": {"enabled": True},
    "target": {
        "service": {"name": "chat", "port": 80},
        "namespace": SHOP,
        "pods": {"labels": LABELS, "port": PORT},
        "envSecret": "chat-token",
        "files": {"secret": {"secretName": "chat-users"}},
    },
    "plan": {
        "schema": 3,
        "name": "chat",
        "services": ["chat"],
        "window_seconds": WINDOW_SECONDS,
        "websocket": {
            "extends": "echo",
            # As on a laptop: there `ladder run` starts it.
            "services": {
                "chat": {
                    "command": ["granian", "--port", "{port}", "chat:app"],
                    "url": "ws://127.0.0.1:{port}/chat",
                    "version": "4.2",
                }
            },
            "connect": {
                "headers": {"Authorization": "Bearer {{env.CHAT_TOKEN}}", "X-User": "{{row.user}}"},
                "rows": "users.csv",
            },
        },
        "ladders": [
            {"workload": "request-reply", "tiers": [TIER], "load": {"model": "open", "rate_per_second": RATE}},
        ],
    },
}


def chat() -> list[Object]:
    """The shop's chat, as its owner deploys it."""
    command = ["/opt/python-fastapi/bin/python", "-m", "granian", "--interface", "asgi", "--host", "0.0.0.0"]
    container = {
        "name": "app",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": [*command, "--port", str(PORT), "chat:app"],
        "workingDir": "/app",
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"limits": {"cpu": "200m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "app", "mountPath": "/app"}],
    }
    pod = hardened_pod("chat", container, volumes=[{"name": "app", "configMap": {"name": "app"}}])
    template = {"metadata": {"labels": LABELS}, "spec": pod["spec"]}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": LABELS}, "template": template}
    ports = [{"port": 80, "targetPort": PORT}]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"chat.py": APP}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"}, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "chat"},
            "spec": {"selector": LABELS, "ports": ports},
        },
    ]


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[Cluster]:
    """A namespace with a running chat."""
    shop = cluster.beside(SHOP)
    shop.kubectl("create", "namespace", SHOP)
    shop.apply(*chat())

    def are_ready() -> bool:
        return sum(is_ready(pod) for pod in shop.list("pods", "app=chat")) == REPLICAS

    until("the chat to be ready", are_ready, 120, lambda: shop.kubectl("get", "pods,events"))
    yield shop
    shop.kubectl("delete", "namespace", SHOP, seconds=120)


@pytest.fixture
def own(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A release in a namespace with the user's Secrets."""
    own = cluster.beside(NAMESPACE)
    own.kubectl("create", "namespace", NAMESPACE)
    for name, data in (("chat-token", {"CHAT_TOKEN": TOKEN}), ("chat-users", {"users.csv": USERS})):
        own.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
    release = Release(own, "target", HELM_4, tmp_path)
    yield release
    release.uninstall()
    own.kubectl("delete", "namespace", NAMESPACE, seconds=120)


def test_a_service_of_another_namespace_is_climbed_by_a_described_plan(
    shop: Cluster, own: Release, tmp_path: Path
) -> None:
    pods = names(shop)
    own.install(VALUES)
    own.until_run_ends("first")
    own.until_restored()
    bundle = Bundle(own.fetch("first", tmp_path))
    [trial] = bundle.trials()
    result, run = read(trial / "result.json"), bundle.run()

    # Every message came back, through both workers, with a token and a user that only Secrets have.
    assert result["validity"]["state"] == "valid", result["validity"]
    assert result["messages"]["delivered"] >= RATE * WINDOW_SECONDS * 0.9, result["messages"]
    assert result["figures"]["failed_share"] == 0, result["messages"]
    assert len(result["workers"]) == 2
    secrets = [path for path in bundle.folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert not secrets

    # What is known of the service, and what isn't.
    listed = {pod["name"]: pod for pod in result["pods"] if pod["role"] == "service"}
    assert set(listed) == pods
    assert all(pod["node"] and "sha256:" in pod["image_digest"] for pod in listed.values()), listed
    assert run["versions"]["chat"] == "4.2"
    usage = run["usage"]["chat"]
    assert all(name in usage for name in pods), usage
    assert "there is a NAT between them" in usage
    assert "was not started by ladder" in run["cpu_roles"]["service"]
    assert result["figures"]["service_cpu_seconds_per_million"] > 0, result["figures"]
    assert result["figures"]["service_rss_bytes"] > 10_000_000, result["figures"]
    assert names(shop) == pods


@pytest.mark.long
def test_a_deployment_of_the_user_gets_fresh_pods_for_a_tier_and_its_replicas_back(
    own: Release, tmp_path: Path
) -> None:
    own.cluster.apply(*chat())
    own.cluster.kubectl("scale", "deployment/chat", "--replicas=1")
    before = names(own.cluster)
    secrets = {key: VALUES["target"][key] for key in ("envSecret", "files")}
    scaled = {"deployment": {"name": "chat", "scale": True, "replicas": REPLICAS}}
    own.install({**VALUES, "target": {**scaled, **secrets, "pods": {"labels": LABELS, "port": PORT}}})
    own.until_run_ends("first")
    own.until_restored()
    bundle = Bundle(own.fetch("first", tmp_path))
    [trial] = bundle.trials()
    result, run = read(trial / "result.json"), bundle.run()
    assert result["validity"]["state"] == "valid", result["validity"]
    assert result["figures"]["failed_share"] == 0, result["messages"]
    loaded = {pod["name"] for pod in result["pods"] if pod["role"] == "service"}
    assert len(loaded) == REPLICAS
    assert not loaded & before
    assert "was scaled by ladder" in run["cpu_roles"]["service"]
    assert "load goes to the addresses of its pods, in turn" in run["usage"]["chat"]
    assert own.cluster.get("deployment", "chat")["spec"]["replicas"] == 1


def names(cluster: Cluster) -> set[str]:
    """The names of the chat's pods."""
    return {pod["metadata"]["name"] for pod in cluster.list("pods", "app=chat")}
