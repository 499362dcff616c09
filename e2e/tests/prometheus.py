"""A real Prometheus beside the cluster: it finds pods as in a cluster, and reads them through the API server."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.parse
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from cluster import Cluster
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
        self.url = ""
        # The environment may name a proxy, which doesn't reach this machine's loopback.
        self.http = build_opener(ProxyHandler({}))
        self.started = 0.0

    def __enter__(self) -> Prometheus:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "prometheus.yaml"
        file.write_text(json.dumps(self.configuration()))
        self.process = subprocess.Popen(
            [
                *(str(PROGRAM), f"--config.file={file}", f"--storage.tsdb.path={self.folder / 'data'}"),
                # The kernel picks the port.
                "--web.listen-address=127.0.0.1:0",
            ],
            stderr=(self.folder / "log").open("w"),
        )
        self.started = time.time()
        port = until("the port of Prometheus", self.port, START_SECONDS, self.log)
        self.url = f"http://127.0.0.1:{port}"
        until("Prometheus", self.is_ready, START_SECONDS, self.log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Finds pods and nodes by the API, and reads each through its proxy: their addresses are the node's own."""
        server, credentials = self.access()
        found = {"kubeconfig_file": str(self.cluster.kubeconfig)}
        pods = {**found, "role": "pod", "namespaces": {"names": [self.cluster.namespace]}}
        name = "__meta_kubernetes_pod"
        pod_path = [f"{name}_name", f"{name}_container_port_number"]
        labels = {
            "namespace": "__meta_kubernetes_namespace",
            "pod": f"{name}_name",
            "app_kubernetes_io_instance": f"{name}_label_app_kubernetes_io_instance",
            "ws_ladder_dev_service": f"{name}_label_ws_ladder_dev_service",
        }
        of_pods = [
            {"source_labels": [f"{name}_container_port_name"], "regex": "metrics", "action": "keep"},
            path(pod_path, "(.+)/(.+)", f"/api/v1/namespaces/{self.cluster.namespace}/pods/$1:$2/proxy/metrics"),
            *({"source_labels": [source], "target_label": label} for label, source in labels.items()),
        ]
        cadvisor = path(["__meta_kubernetes_node_name"], "(.+)", "/api/v1/nodes/$1/proxy/metrics/cadvisor")
        jobs = [("pods", pods, of_pods), ("cadvisor", {**found, "role": "node"}, [cadvisor])]
        through = {"target_label": "__address__", "replacement": server}
        return {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {
                    "job_name": job,
                    "scheme": "https",
                    "tls_config": credentials,
                    "kubernetes_sd_configs": [service_discovery],
                    "relabel_configs": [*rules, through],
                }
                for job, service_discovery, rules in jobs
            ],
        }

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


def path(sources: list[str], regex: str, to: str) -> dict[str, Any]:
    """A rule that makes a target's path."""
    rule = {"source_labels": sources, "separator": "/", "regex": regex}
    return {**rule, "target_label": "__metrics_path__", "replacement": to}


def socket_of(file: Path) -> str:
    """What a descriptor refers to; empty if it was closed meanwhile."""
    try:
        return str(file.readlink())
    except OSError:
        return ""
