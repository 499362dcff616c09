"""Evaluates the rendered NetworkPolicies: which pod may open which port, by the rules of Kubernetes' documentation.

A test cluster may have no plugin that enforces policies, so they are evaluated here
(https://kubernetes.io/docs/concepts/services-networking/network-policies/). The expected result is the table "Ports in
a cluster" of docs/SECURITY-MODEL.md. Run by `just chart-check`, with helm on the PATH.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from rendering import CHART, FANOUT, GATEWAY, YOUR_SERVICE, render

MODEL = CHART.parents[1] / "docs" / "SECURITY-MODEL.md"
AGENTS = ["--set", "nodeEvidence.enabled=true"]
MONITORED = ["--set", "monitoring.podMonitor.enabled=true"]


# The label that Kubernetes gives to each namespace.
NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class Pod:
    """A pod as policies see it."""

    role: str
    labels: dict[str, str] = field(hash=False)
    ports: dict[str, int] = field(hash=False)
    namespace: str = "lab"


# Pods of other users: in the release's namespace without a role's label, and with the operator's labels in another one.
FOREIGN_PODS = [
    Pod("foreign", {"app": "other"}, {}),
    Pod("foreign", {"app.kubernetes.io/name": "ws-ladder", "app.kubernetes.io/instance": "bench"}, {}),
    Pod(
        "foreign",
        {
            "app.kubernetes.io/name": "ws-ladder",
            "app.kubernetes.io/instance": "bench",
            "app.kubernetes.io/component": "operator",
        },
        {},
        "elsewhere",
    ),
]


def pods(objects: list[dict[str, Any]]) -> list[Pod]:
    """The pods that the objects create, one of each Deployment, DaemonSet, Job and Pod."""
    found = []
    for each in objects:
        template = each if each["kind"] == "Pod" else each.get("spec", {}).get("template")
        if each["kind"] not in ("Deployment", "DaemonSet", "Job", "Pod"):
            continue
        labels = template["metadata"]["labels"]
        ports = {
            port["name"]: port["containerPort"]
            for container in template["spec"]["containers"]
            for port in container.get("ports", [])
        }
        found.append(Pod(labels["app.kubernetes.io/component"], labels, ports))
    return found


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector matches; these policies use `matchLabels` only."""
    assert set(selector) <= {"matchLabels"}, selector
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def is_peer(peer: dict[str, Any], pod: Pod) -> bool:
    """Whether a pod is among a rule's peers; without a namespaceSelector a peer is in the policy's namespace."""
    assert set(peer) <= {"podSelector", "namespaceSelector"}, peer
    of_namespace = peer.get("namespaceSelector", {"matchLabels": {NAME: "lab"}})
    return selects(of_namespace, {NAME: pod.namespace}) and selects(peer["podSelector"], pod.labels)


def has_port(ports: list[dict[str, Any]], target: Pod, name: str) -> bool:
    """Whether a rule's ports have the target's port, by name or by number."""
    return any(each["port"] in (name, target.ports[name]) and each.get("protocol", "TCP") == "TCP" for each in ports)


def is_allowed(policies: list[dict[str, Any]], source: Pod, target: Pod, port: str) -> bool:
    """Whether `source` may open `port` of `target`: the target's ingress and the source's egress both allow it."""
    for direction, side, key, subject, other in (
        ("Ingress", "ingress", "from", target, source),
        ("Egress", "egress", "to", source, target),
    ):
        if subject.namespace != "lab":
            continue
        restricting = [
            policy["spec"]
            for policy in policies
            if direction in policy["spec"]["policyTypes"] and selects(policy["spec"]["podSelector"], subject.labels)
        ]
        rules = [rule for spec in restricting for rule in spec.get(side) or []]
        if restricting and not any(
            (key not in rule or any(is_peer(peer, other) for peer in rule[key]))
            and ("ports" not in rule or has_port(rule["ports"], target, port))
            for rule in rules
        ):
            return False
    return True


def evaluated(objects: list[dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    """The roles that may open each port, by the role and the name of the port."""
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    all_pods = pods(objects)
    table: dict[tuple[str, str], set[str]] = {}
    for target in all_pods:
        for port in target.ports:
            allowed = table.setdefault((target.role, port), set())
            allowed |= {
                source.role for source in [*all_pods, *FOREIGN_PODS] if is_allowed(policies, source, target, port)
            }
    return table


def documented() -> dict[tuple[str, str], set[str]]:
    """The same from docs/SECURITY-MODEL.md."""
    text = MODEL.read_text()
    section = text[text.index("## Ports in a cluster") :].split("\n## ")[0]
    table = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 3 and (port := re.match(r"`([a-z]+)`", cells[1])):
            table[cells[0], port[1]] = set(re.findall(r"`([a-z]+)`", cells[2]))
    return table


@pytest.mark.parametrize(
    "values", [[], FANOUT, GATEWAY, AGENTS], ids=["the defaults", "several instances", "a gateway", "agents"]
)
def test_each_port_is_open_only_to_the_pods_that_the_security_model_names(values: list[str]) -> None:
    expected = documented()
    table = evaluated(render(*values))
    assert len(table) >= 6
    roles = {role for role, _ in table}
    for target, allowed in table.items():
        assert allowed == {role for role in expected[target] if role in roles | {"worker", "test"}}, target


def test_every_port_of_the_security_model_belongs_to_a_pod() -> None:
    rendered = [evaluated(render(*values)).keys() for values in (GATEWAY, FANOUT, AGENTS)]
    assert documented().keys() == set().union(*rendered)


def test_without_policies_a_foreign_pod_reaches_every_port() -> None:
    table = evaluated(render("--set", "networkPolicy.enabled=false"))
    assert all("foreign" in allowed for allowed in table.values())


def test_a_monitor_opens_only_the_metrics_ports() -> None:
    closed, monitored = evaluated(render(*GATEWAY)), evaluated(render(*GATEWAY, *MONITORED))
    opened = {port for port, allowed in monitored.items() if "foreign" in allowed}
    assert opened == {("operator", "metrics"), ("service", "metrics"), ("inference", "http")}
    assert all(monitored[port] == closed[port] for port in closed.keys() - opened)


@pytest.mark.parametrize("values", [[], FANOUT, GATEWAY], ids=["the defaults", "several instances", "a gateway"])
def test_the_operator_may_scale_and_patch_only_the_rendered_objects(values: list[str]) -> None:
    objects = render(*values)
    (role,) = [each for each in objects if each["kind"] == "Role"]
    allowed = {
        (resource, verb): rule.get("resourceNames", "all")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    operator = {"bench-ws-ladder-operator"}
    for resource, kind, verb in [("deployments/scale", "Deployment", "patch"), ("jobs", "Job", "patch")]:
        rendered = {each["metadata"]["name"] for each in objects if each["kind"] == kind} - operator
        assert rendered, kind
        assert set(allowed[resource, verb]) == rendered, kind
    assert not [each for each in objects if each["kind"] == "ClusterRole"]
    # Kubernetes can't restrict these to names: lists and watches, new objects, pods with generated names.
    unnamed = {verb for (_, verb), names in allowed.items() if names == "all"}
    assert unnamed == {"get", "list", "watch", "create"}


# Pods of the namespace `shop`: one of the service, and one beside it.
CHAT = Pod("chat", {"app": "chat"}, {"ws": 3000, "admin": 3001}, "shop")
DATABASE = Pod("database", {"app": "database"}, {"ws": 3000}, "shop")
PORTS_OF_PODS = ["--set", "target.pods.port=null"]
NO_LABELS = [*PORTS_OF_PODS, "--set", "target.pods.labels=null"]
OUTSIDE = ["--set", "target.service.name=", "--set", "target.url=wss://chat.example.com:443/"]
EGRESS = ["--set", "target.egress[0].ipBlock.cidr=192.0.2.0/24"]


@pytest.mark.parametrize(
    ("values", "opened"),
    [
        ([], {("chat", "ws")}),
        (PORTS_OF_PODS, {("chat", "ws"), ("chat", "admin")}),
        (NO_LABELS, {("chat", "ws"), ("chat", "admin"), ("database", "ws")}),
    ],
    ids=["labels and port", "labels", "its namespace alone"],
)
def test_workers_reach_the_pods_of_the_target_as_far_as_the_values_name_them(
    values: list[str], opened: set[tuple[str, str]]
) -> None:
    objects = render(*YOUR_SERVICE, *values)
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    (worker, *_) = [pod for pod in pods(objects) if pod.role == "worker"]
    # The same labels in another namespace are no target.
    elsewhere = Pod("elsewhere", CHAT.labels, CHAT.ports, "lab")
    targets = [(pod, port) for pod in (CHAT, DATABASE, elsewhere) for port in pod.ports]
    assert {(pod.role, port) for pod, port in targets if is_allowed(policies, worker, pod, port)} == opened


def test_workers_reach_a_target_outside_at_its_port_only() -> None:
    def egress(*values: str) -> list[dict[str, Any]]:
        objects = render(*YOUR_SERVICE, *OUTSIDE, *values)
        (policy,) = [
            each for each in objects if each["metadata"]["name"].endswith("-worker") and "egress" in each["spec"]
        ]
        return [rule for rule in policy["spec"]["egress"] if rule["ports"][0]["port"] == 443]

    assert egress() == [{"ports": [{"port": 443}]}]
    assert egress(*EGRESS) == [{"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]


def test_a_target_opens_no_port_of_the_release() -> None:
    expected = documented()
    for target, allowed in evaluated(render(*YOUR_SERVICE)).items():
        assert allowed == {role for role in expected[target] if role in {"operator", "worker", "test"}}, target


def test_agents_of_nodes_let_the_operator_read_nodes_and_have_no_rights_themselves() -> None:
    objects = render(*AGENTS)
    (role,) = [each for each in objects if each["kind"] == "ClusterRole"]
    rights = {(resource, *rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert rights == {("pods", "list"), ("nodes", "get")}
    (agents,) = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "DaemonSet"]
    assert agents["automountServiceAccountToken"] is False
    assert [volume.get("hostPath", {}).get("path") for volume in agents["volumes"]] == ["/sys/fs/cgroup"]
    (container,) = agents["containers"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
