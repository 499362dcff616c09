"""The cluster as its users see it: through kubectl."""

import json
import subprocess
from pathlib import Path
from typing import Any

Object = dict[str, Any]

COMMAND_SECONDS = 60


class Cluster:
    """One namespace of a cluster, named by its kubeconfig."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def run(self, *command: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """Standard output of a command that has to succeed."""
        done = self.attempt(*command, stdin=stdin, seconds=seconds)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}\n{done.stdout.strip()}"
        return done.stdout

    def attempt(
        self, *command: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """A command that may fail."""
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """Standard output of kubectl in the namespace."""
        return self.run(*self.kubectl_command(*arguments), stdin=stdin, seconds=seconds)

    def kubectl_command(self, *arguments: str) -> list[str]:
        """How kubectl is called."""
        return ["kubectl", "--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace, *arguments]

    def get(self, kind: str, name: str) -> Object:
        """One object."""
        found: Object = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """All objects of a kind that have these labels."""
        found: list[Object] = json.loads(self.kubectl("get", kind, "-o", "json", "--selector", selector))["items"]
        return found

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def reach(self, service: str, port: str, path: str) -> str:
        """What a service answers to a GET, through the API server."""
        return self.kubectl(
            "get", "--raw", f"/api/v1/namespaces/{self.namespace}/services/{service}:{port}/proxy{path}"
        )


def name_of(thing: Object) -> str:
    """The name of an object."""
    name: str = thing["metadata"]["name"]
    return name


def is_ready(pod: Object) -> bool:
    """Whether a pod is Ready, and not on its way out."""
    conditions = pod["status"].get("conditions", [])
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
