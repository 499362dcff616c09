"""Network policies as iptables rules of the cluster's nodes.

The cluster's network plugin enforces none, and no controller that would do it can be built here. This shows what
selectors and ports mean, not that a controller agrees; the GitHub workflow has one that does.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster import Cluster, Object
from nodes import inside_first_node

CHAIN = "WSL-POLICIES"
# Pods that come up meanwhile are without rules for so long.
INTERVAL_SECONDS = 0.5


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector selects these labels; an empty one selects everything."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(fulfils(expression, labels) for expression in selector.get("matchExpressions", []))


def fulfils(expression: Object, labels: dict[str, str]) -> bool:
    """Whether labels fulfil one expression of a selector."""
    found, values = labels.get(expression["key"]), expression.get("values", [])
    by_operator = {
        "In": found in values,
        "NotIn": found not in values,
        "Exists": found is not None,
        "DoesNotExist": found is None,
    }
    return by_operator[expression["operator"]]


class Policies:
    """All pods, policies and namespaces of a cluster at a moment."""

    def __init__(self, objects: list[Object]) -> None:
        def of_kind(kind: str) -> list[Object]:
            return [item for item in objects if item["kind"] == kind]

        self.pods = [pod for pod in of_kind("Pod") if address(pod) and not pod["spec"].get("hostNetwork")]
        self.policies = of_kind("NetworkPolicy")
        labels = {item["metadata"]["name"]: item["metadata"].get("labels", {}) for item in of_kind("Namespace")}
        self.namespaces: dict[str, dict[str, str]] = labels

    def restore_file(self) -> str:
        """The rules, as `iptables-restore --noflush` reads them: all of them are replaced at once."""
        chains, rules = [CHAIN], [f"-A {CHAIN} -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"]
        for direction, flag in (("Ingress", "-d"), ("Egress", "-s")):
            for index, pod in enumerate(self.pods):
                selecting = [policy for policy in self.policies if selects(policy, pod, direction)]
                if not selecting:
                    continue
                chain = f"WSL-{direction.upper()}-{index}"
                chains.append(chain)
                rules.append(f"-A {CHAIN} {flag} {address(pod)} -j {chain}")
                rules += [f"-A {chain} {match} -j RETURN" for match in self.allowed(selecting, pod, direction)]
                rules.append(f"-A {chain} -j DROP")
        declared = [f":{chain} - [0:0]" for chain in chains]
        return "\n".join(["*filter", *declared, *rules, "COMMIT", ""])

    def allowed(self, policies: list[Object], pod: Object, direction: str) -> Iterator[str]:
        """What the policies that select a pod let through, as matches of iptables."""
        side, peers = ("-s", "from") if direction == "Ingress" else ("-d", "to")
        for policy in policies:
            for rule in policy["spec"].get(direction.lower(), []):
                # Without peers: everyone, whose ports' names could only be looked up in the pod itself.
                addresses: list[tuple[str, Object | None]] = [("0.0.0.0/0", pod)]
                if rule.get(peers):
                    addresses = [pair for peer in rule[peers] for pair in self.addresses(peer, policy)]
                for network, peer_pod in addresses:
                    called = pod if direction == "Ingress" else peer_pod
                    for port in ports(rule.get("ports", []), called):
                        yield f"{side} {network} {port}".rstrip()

    def addresses(self, peer: Object, policy: Object) -> Iterator[tuple[str, Object | None]]:
        """The networks of a peer, with the pod that has the address."""
        if "ipBlock" in peer:
            assert "except" not in peer["ipBlock"], "exceptions of address blocks are not translated"
            yield peer["ipBlock"]["cidr"], None
            return
        for pod in self.pods:
            namespace = pod["metadata"]["namespace"]
            if "namespaceSelector" in peer:
                is_near = matches(peer["namespaceSelector"], self.namespaces[namespace])
            else:
                is_near = namespace == policy["metadata"]["namespace"]
            if is_near and matches(peer.get("podSelector", {}), pod["metadata"].get("labels", {})):
                yield f"{address(pod)}/32", pod


def address(pod: Object) -> str:
    """A pod's address while it runs; empty otherwise, because another pod may get it."""
    has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return "" if has_ended else str(pod["status"].get("podIP", ""))


def selects(policy: Object, pod: Object, direction: str) -> bool:
    """Whether a policy restricts a pod in a direction."""
    spec = policy["spec"]
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
    is_same = policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return direction in types and is_same and matches(spec["podSelector"], pod["metadata"].get("labels", {}))


def ports(rules: list[Object], called: Object | None) -> Iterator[str]:
    """The ports of a rule as matches of iptables; a name is looked up in the pod that is called."""
    if not rules:
        yield ""
    for rule in rules:
        protocol, port = rule.get("protocol", "TCP").lower(), rule.get("port")
        numbers = [port] if not isinstance(port, str) else named(called, port)
        for number in numbers:
            end = f":{rule['endPort']}" if "endPort" in rule else ""
            yield f"-p {protocol}" + (f" --dport {number}{end}" if number else "")


def named(pod: Object | None, name: str) -> list[int]:
    """The numbers of a port's name in a pod's containers, those that run beside the others included."""
    spec = pod["spec"] if pod else {}
    containers = [*spec.get("containers", []), *spec.get("initContainers", [])]
    found = [port for container in containers for port in container.get("ports", [])]
    return [port["containerPort"] for port in found if port.get("name") == name]


class Enforcement:
    """A context manager in which the cluster's policies are enforced on its first node."""

    def __init__(self, cluster: Cluster, state: Path) -> None:
        """`state`: the folder of the cluster that belongs to this checkout."""
        self.inside = inside_first_node(state, "net")
        self.cluster = cluster
        self.loaded = ""
        self.failure: BaseException | None = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Enforcement":
        self._load()
        self._iptables("-I", "FORWARD", "-j", CHAIN)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join(60)
        self._iptables("-D", "FORWARD", "-j", CHAIN)
        assert not self.failure, f"policies were not followed to the end: {self.failure}"

    def update(self) -> None:
        """Loads the rules of all pods that have addresses now."""
        self._load()

    def _follow(self) -> None:
        try:
            while not self.stopped.wait(INTERVAL_SECONDS):
                self._load()
        except BaseException as error:
            self.failure = error

    def _load(self) -> None:
        kinds = "pods,networkpolicies,namespaces"
        found: Any = json.loads(self.cluster.kubectl("get", kinds, "--all-namespaces", "-o", "json"))
        rules = Policies(found["items"]).restore_file()
        if rules != self.loaded:
            self.cluster.run(*self.inside, "iptables-restore", "--noflush", stdin=rules)
            self.loaded = rules

    def _iptables(self, *arguments: str) -> None:
        self.cluster.run(*self.inside, "iptables", *arguments)


def can_connect(process_id: int, address: str, port: int) -> bool:
    """Whether the network namespace of a process can open a TCP connection to an address within two seconds."""
    script = f"import socket; socket.create_connection(({address!r}, {port}), 2)"
    command = ["nsenter", "--target", str(process_id), "--net", "python3", "-c", script]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
