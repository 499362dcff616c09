"""Access to the cluster through kubectl, as users have it."""

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from api import Api

Object = dict[str, Any]

COMMAND_SECONDS = 60

# What is looked at again and again while a condition is waited for, with the group of the API that has it.
LISTED = {"pods": "api/v1", "services": "api/v1", "deployments": "apis/apps/v1", "jobs": "apis/batch/v1"}


class Cluster:
    """One namespace of the cluster that a kubeconfig file names."""

    def __init__(self, kubeconfig: Path, namespace: str, api: Api) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.api = api

    def beside(self, namespace: str) -> "Cluster":
        """Another namespace of the same cluster."""
        return Cluster(self.kubeconfig, namespace, self.api)

    def run(self, *command: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """Runs a command that must succeed and returns its standard output."""
        completed = self.attempt(*command, stdin=stdin, seconds=seconds)
        assert completed.returncode == 0, f"{' '.join(command)}: {completed.stderr.strip()}\n{completed.stdout.strip()}"
        return completed.stdout

    def attempt(
        self, *command: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command that may fail."""
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """Runs kubectl in the namespace and returns its standard output."""
        return self.run(*self.kubectl_command(*arguments), stdin=stdin, seconds=seconds)

    def kubectl_command(self, *arguments: str) -> list[str]:
        """The command line of kubectl for this cluster and namespace."""
        return ["kubectl", "--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace, *arguments]

    def get(self, kind: str, name: str) -> Object:
        """Gets one object by kind and name."""
        parsed: Object = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return parsed

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """Lists the objects of a kind that match a label selector."""
        if kind in LISTED:
            found = self.api.read(f"{self.collection(kind)}?{urlencode({'labelSelector': selector})}")
        else:
            found = self.kubectl("get", kind, "-o", "json", "--selector", selector)
        parsed: list[Object] = json.loads(found)["items"]
        return parsed

    def collection(self, kind: str) -> str:
        """The path at which the API server has all objects of a kind of `LISTED`."""
        return f"/{LISTED[kind]}/namespaces/{self.namespace}/{kind}"

    def apply(self, *objects: Object) -> None:
        """Creates or changes objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def reach(self, service: str, port: str, path: str) -> str:
        """The response of a service to a GET through the API server's proxy."""
        return self.api.read(self.proxied(service, port, path))

    def proxied(self, service: str, port: str, path: str) -> str:
        """The path at which the API server's proxy has a path of a service."""
        return f"/api/v1/namespaces/{self.namespace}/services/{service}:{port}/proxy{path}"


def hardened_pod(name: str, container: Object, **spec: Any) -> Object:
    """A pod of one container that a namespace with Pod Security `restricted` admits."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    of_pod = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"securityContext": of_pod, "containers": [{**container, "securityContext": context}], **spec},
    }


def name_of(resource: Object) -> str:
    """The object's `metadata.name`."""
    name: str = resource["metadata"]["name"]
    return name


def is_ready(pod: Object) -> bool:
    """Whether a pod is Ready and not being deleted."""
    conditions = pod["status"].get("conditions", [])
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
