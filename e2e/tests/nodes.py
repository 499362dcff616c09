"""Further nodes of this checkout's cluster, and what happens to nodes: e2e/cluster/further."""

import subprocess
from pathlib import Path

from cluster import Object

FURTHER = Path(__file__).resolve().parents[1] / "cluster/further"
FIRST_NODE = "ws-ladder-node"
HOSTNAME = "kubernetes.io/hostname"
# What pods of a trial need: the service with `evidence`, and workers.
IMAGES = [f"ghcr.io/ws-ladder/{name}:0.1.0" for name in ("operator", "wse-server", "wse-bench")]


def on(node: str) -> Object:
    """The scheduling of a role whose pods run on this node."""
    return {"nodeSelector": {HOSTNAME: node}}


def inside_first_node(state: Path, *namespaces: str) -> list[str]:
    """The start of a command that runs in namespaces of the first node; `state`: the folder of its cluster."""
    outer = (state / "pid").read_text().split()[0]
    inner = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]
    return ["nsenter", "--target", inner, *(f"--{namespace}" for namespace in namespaces)]


class FurtherNode:
    """One further node, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"{FIRST_NODE}-{number}"

    def join(self) -> None:
        """Starts the node, or brings it back after a power cut."""
        self._call("join", *IMAGES)

    def kill(self) -> None:
        """Ends all its processes at once, as a power cut does."""
        self._call("kill")

    def freeze(self) -> None:
        """Stops all its processes, those of pods included."""
        self._call("freeze")

    def thaw(self) -> None:
        """Lets its processes go on."""
        self._call("thaw")

    def cut(self) -> None:
        """Takes its network down. Its pods run on."""
        self._call("cut")

    def mend(self) -> None:
        """Takes its network up again."""
        self._call("mend")

    def remove(self) -> None:
        """Removes it from the cluster and from the machine."""
        self._call("remove")

    def _call(self, verb: str, *arguments: str) -> None:
        command = [str(FURTHER), verb, str(self.number), *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert completed.returncode == 0, f"{' '.join(command[:3])}: {completed.stderr}"
