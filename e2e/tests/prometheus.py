"""A real Prometheus beside the cluster, which reads the release's pods through the API server.

Debian's can't find pods by itself, so a thread lists them for it, with the labels that the chart's monitors give them.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from cluster import Cluster, Object, name_of
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".tools/prometheus/bin/prometheus"
# Longest wait for its first answer.
START_SECONDS = 60
# As a Prometheus with `interval: 1s` would replace Grafana's variable: at least four scrapes.
RATE_INTERVAL = "6s"


class Prometheus:
    """Scrapes every second while its block runs."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.targets = folder / "targets.json"
        self.server, self.credentials = self.access()
        self.is_over = threading.Event()
        self.lister = threading.Thread(target=self.list_pods)
        self.url = ""
        # The environment may name a proxy, which doesn't reach this machine's loopback.
        self.http = build_opener(ProxyHandler({}))
        self.started = 0.0

    def __enter__(self) -> Prometheus:
        file = self.folder / "prometheus.yaml"
        file.write_text(json.dumps(self.configuration()))
        self.targets.write_text("[]")
        # The kernel picks the port.
        options = [f"--config.file={file}", f"--storage.tsdb.path={self.folder / 'data'}"]
        options.append("--web.listen-address=127.0.0.1:0")
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen([str(PROGRAM), *options], stderr=log)
        self.lister.start()
        try:
            port = until("the port of Prometheus", self.port, START_SECONDS, self.log)
            self.url = f"http://127.0.0.1:{port}"
            until("Prometheus", self.is_ready, START_SECONDS, self.log)
        except BaseException:
            self.stop()
            raise
        self.started = time.time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process and the thread."""
        self.is_over.set()
        self.lister.join()
        self.process.terminate()
        self.process.wait(START_SECONDS)

    def port(self) -> int | None:
        """The loopback port on which the process listens; `None` until it does."""
        assert self.process.poll() is None, self.log()
        sockets = {socket_of(path) for path in Path(f"/proc/{self.process.pid}/fd").iterdir()}
        for line in Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            # 0A: it listens.
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                return int(fields[1].split(":")[1], 16)
        return None

    def is_ready(self) -> bool:
        try:
            with self.http.open(f"{self.url}/-/ready") as response:
                return bool(response.status == 200)
        except URLError:
            return False

    def log(self) -> str:
        """The last lines of its log, for the message of a timeout."""
        return "\n".join((self.folder / "log").read_text().splitlines()[-8:])

    def series(self, query: str) -> list[Any]:
        """The series of a query since the start, second by second. Fails where Prometheus refuses the query."""
        options = {"query": query, "start": self.started, "end": time.time(), "step": "1"}
        with self.http.open(f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(options)}") as response:
            reply = json.load(response)
        assert reply["status"] == "success", reply
        found: list[Any] = reply["data"]["result"]
        return found

    def configuration(self) -> dict[str, Any]:
        """Reads pods and nodes through the API server's proxy: their addresses are the node's own."""
        common = {"scheme": "https", "tls_config": self.credentials}
        nodes = [target(self.server, f"/api/v1/nodes/{name_of(node)}/proxy/metrics/cadvisor") for node in self.nodes()]
        found = {"files": [str(self.targets)], "refresh_interval": "1s"}
        return {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": "pods", **common, "file_sd_configs": [found]},
                {"job_name": "cadvisor", **common, "static_configs": nodes},
            ],
        }

    def nodes(self) -> list[Object]:
        found: list[Object] = self.cluster.list("nodes")
        return found

    def list_pods(self) -> None:
        """Writes the pods with a port named `metrics` into the file that Prometheus watches, until the block ends."""
        while not self.is_over.wait(1):
            status, pods = self.cluster.api.get(self.cluster.collection("pods"))
            if status == HTTPStatus.OK:
                found = [one for pod in json.loads(pods)["items"] for one in self.targets_of(pod)]
                # Replaced in one step, so that it is never read half written.
                new = self.targets.with_suffix(".new")
                new.write_text(json.dumps(found))
                new.replace(self.targets)

    def targets_of(self, pod: Object) -> Iterator[Object]:
        """The metrics of a pod, labelled as by the chart's PodMonitor."""
        own = pod["metadata"].get("labels", {})
        labels = {
            "namespace": self.cluster.namespace,
            "pod": name_of(pod),
            "app_kubernetes_io_instance": own.get("app.kubernetes.io/instance", ""),
            "ws_ladder_dev_service": own.get("ws-ladder.dev/service", ""),
        }
        ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
        for port in ports:
            if port.get("name") == "metrics" and pod["status"].get("phase") == "Running":
                path = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{name_of(pod)}:{port['containerPort']}/proxy"
                yield target(self.server, f"{path}/metrics", labels)

    def access(self) -> tuple[str, dict[str, str]]:
        """The API server's address, and the files of the kubeconfig's certificates."""
        kubeconfig = json.loads(self.cluster.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
        server, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        contents = {
            "ca_file": server["certificate-authority-data"],
            "cert_file": user["client-certificate-data"],
            "key_file": user["client-key-data"],
        }
        files = {}
        for name, content in contents.items():
            file = self.folder / name
            file.touch(mode=0o600)
            file.write_bytes(base64.b64decode(content))
            files[name] = str(file)
        return server["server"].removeprefix("https://"), files


def target(server: str, path: str, labels: dict[str, str] | None = None) -> Object:
    """A target of Prometheus behind the API server."""
    return {"targets": [server], "labels": {"__metrics_path__": path, **(labels or {})}}


def socket_of(file: Path) -> str:
    """What a descriptor refers to; empty if it was closed meanwhile."""
    try:
        return str(file.readlink())
    except OSError:
        return ""
