"""A release of the chart: changed with helm, read with `ladder` and the operator's web port, as users do."""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from cluster import Cluster, Object, is_ready, name_of
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/ws-ladder"
VALUES = ROOT / "e2e/values.yaml"
HELM_3 = str(ROOT / ".tools/bin/helm3")
HELM_4 = str(ROOT / ".tools/bin/helm")
LADDER = ROOT / "target/release/ladder"

# Labels of the Deployments that the operator scales, and of the pods that it starts.
SCALED = "app.kubernetes.io/component in (service,companion,inference)"
STARTED = "app.kubernetes.io/component in (service,companion,inference,worker)"

INSTALL_SECONDS = 120
RUN_SECONDS = 150

Values = dict[str, Any]


class Release:
    """One release, managed by one major version of Helm."""

    def __init__(self, cluster: Cluster, name: str, helm: str, work: Path, base: Path | None = VALUES) -> None:
        """`base`: the values below those of each command; `None`: only the chart's own."""
        self.cluster = cluster
        self.name = name
        self.helm = helm
        self.work = work
        self.base = base
        # By default, Helm 4 also waits for Jobs, and a suspended Job never starts.
        self.wait = "--wait=legacy" if helm == HELM_4 else "--wait"
        self.instance = f"app.kubernetes.io/instance={name}"
        self.service: str | None = None

    # --- changing the release

    def install(self, values: Values | None = None) -> None:
        """Installs the release and waits until it is ready."""
        self.cluster.run(*self.helm_command("install", values), seconds=INSTALL_SECONDS)

    def upgrade(self, values: Values, *options: str) -> None:
        """Upgrades the release and waits until it is ready."""
        self.cluster.run(*self.helm_command("upgrade", values), *options, seconds=INSTALL_SECONDS)

    def helm_command(self, verb: str, values: Values | None = None) -> list[str]:
        """The command line of helm: the release's base values, overridden by `values`."""
        file = self.work / f"{self.name}.json"
        file.write_text(json.dumps(values or {}))
        common = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.cluster.namespace]
        wait = [self.wait, "--timeout", f"{INSTALL_SECONDS - 10}s"]
        files = [option for path in (self.base, file) if path for option in ("-f", str(path))]
        return [self.helm, verb, self.name, str(CHART), *common, *wait, *files]

    def uninstall(self) -> None:
        """Uninstalls the release and waits until its pods are gone; kept objects remain."""
        common = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.cluster.namespace]
        self.cluster.run(self.helm, "uninstall", self.name, *common, "--wait", seconds=INSTALL_SECONDS)

    # --- reading the release

    def component(self, component: str) -> str:
        """The label selector of a component of this release."""
        return f"{self.instance},app.kubernetes.io/component={component}"

    def pods(self, component: str) -> list[Object]:
        """The pods of a component that aren't being deleted."""
        pods = self.cluster.list("pods", self.component(component))
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def ready_pod(self, component: str, seconds: float = 60) -> Object:
        """Waits for a Ready pod of a component and returns it."""
        return until(
            f"a ready pod of the {component}",
            lambda: next((pod for pod in self.pods(component) if is_ready(pod)), None),
            seconds,
            lambda: self.describe(),
        )

    def operator_service(self) -> str:
        """The name of the operator's Service, asked for once: it stays the same, and conditions are looked at often."""
        if self.service is None:
            self.service = name_of(next(iter(self.cluster.list("services", self.component("operator")))))
        return self.service

    def web(self, path: str) -> Any:
        """The JSON that the operator's web port returns for a path."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """The text that the operator's web port returns for a path."""
        return self.cluster.reach(self.operator_service(), "web", path)

    def metrics(self) -> str:
        """The operator's metrics, in the text format of Prometheus."""
        return self.cluster.reach(self.operator_service(), "metrics", "/metrics")

    def status(self) -> Any:
        """The operator's `/api/status`; `None` while no operator responds."""
        return self.answer("status")

    def answer(self, name: str) -> Any:
        """The operator's `/api/NAME`; `None` while no operator responds."""
        path = self.cluster.proxied(self.operator_service(), "web", f"/api/{name}")
        status, body = self.cluster.api.get(path)
        return json.loads(body) if status == HTTPStatus.OK else None

    @contextmanager
    def seconds(self) -> Iterator[list[Any]]:
        """The events of the operator's `/api/live` while the block runs; the list is filled at its end."""
        path = self.cluster.proxied(self.operator_service(), "web", "/api/live")
        command = self.cluster.kubectl_command("get", "--raw", path)
        found: list[Any] = []
        with tempfile.TemporaryFile("w+") as output:
            reader = subprocess.Popen(command, stdout=output)
            try:
                yield found
            finally:
                reader.terminate()
                reader.wait()
            output.seek(0)
            # The last line may be cut.
            lines = output.read().split("\n")[:-1]
            found += [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    def until_status(self, condition: str, is_met: Callable[[Any], bool], seconds: float = RUN_SECONDS) -> Any:
        """Waits until `is_met` holds for the status and returns it."""

        def read() -> Any:
            status = self.status()
            return status if status and is_met(status) else None

        return until(condition, read, seconds, self.describe)

    def until_trial(self, run: str, tier: int) -> Any:
        """Waits until a tier's trial is being measured and returns the status."""

        def is_met(status: Any) -> bool:
            step = status["step"] or {"step": ""}
            of_tier = (status["tier"] or "").endswith(f"/{tier}")
            return bool(status["run_id"] == run and of_tier and step["step"] == "trial")

        return self.until_status(f"the trial of tier {tier} of run {run}", is_met)

    def until_loaded(self, run: str, tier: int) -> None:
        """Waits until the workers of a tier's trial report that they have sent messages."""
        self.until_trial(run, tier)
        sent = re.compile(r'ladder_worker_messages\{worker="\d+",kind="sent"\} ([\d.]+)')

        def is_loaded() -> bool:
            found = sent.findall(self.metrics())
            return bool(found) and all(float(number) > 0 for number in found)

        until(f"load of tier {tier} of run {run}", is_loaded, RUN_SECONDS, self.describe)

    def until_run_ends(self, run: str, seconds: float = RUN_SECONDS) -> Any:
        """Waits until a run has finished, with any verdict, and returns the status."""
        return self.until_status(
            f"the end of run {run}",
            lambda status: status["run_id"] == run and status["state"] == "finished",
            seconds,
        )

    def wait_for_verdict(self) -> str:
        """Waits for the run's end with `ladder assert --wait`; returns its standard error followed by its output."""
        completed = self.cluster.attempt(*self.ladder_command("assert", "--wait"), seconds=RUN_SECONDS)
        assert completed.returncode == 0, f"{completed.stderr}{completed.stdout}{self.describe()}"
        return completed.stderr + completed.stdout

    def until_status_prints(self, expected: str, seconds: float = 60) -> None:
        """Waits until `ladder status` prints `expected`; it also reaches an operator that isn't ready."""

        def is_printed() -> bool:
            return expected in self.cluster.attempt(*self.ladder_command("status")).stdout

        until(f"ladder status to print: {expected}", is_printed, seconds, self.describe)

    def events(self, reason: str) -> list[Object]:
        """The Events with this reason about the operator's pods."""
        pods = {pod["metadata"]["uid"] for pod in self.pods("operator")}
        events = self.cluster.list("events.events.k8s.io")
        return [event for event in events if event["reason"] == reason and event["regarding"]["uid"] in pods]

    def describe(self) -> str:
        """The current status, objects and Events, for the message of a timeout."""
        pods = self.cluster.kubectl("get", "deployments,jobs,pods", "--selector", self.instance)
        events = self.cluster.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-8:]
        return "\n".join([f"Status: {json.dumps(self.status())}", pods, *events])

    def ladder(self, *arguments: str) -> str:
        """Runs `ladder` for this release, which uses a port-forward, and returns its output."""
        return self.cluster.run(*self.ladder_command(*arguments))

    def ladder_command(self, *arguments: str) -> list[str]:
        """The command line of `ladder` for this release."""
        kubeconfig = ["--kubeconfig", str(self.cluster.kubeconfig)]
        location = [*kubeconfig, "--namespace", self.cluster.namespace, "--release", self.name]
        return [str(LADDER), *arguments, *location]

    def fetch(self, run: str, folder: Path) -> Path:
        """Fetches the bundle of a run as users do, without the report; returns its folder."""
        self.ladder("fetch", run, "--results", str(folder), "--no-report")
        return folder / run

    # --- what the operator has to restore

    def is_restored(self) -> bool:
        """Whether all services are scaled to 0, all Jobs are suspended, and none of their pods is left."""
        deployments = self.cluster.list("deployments", f"{self.instance},{SCALED}")
        jobs = self.cluster.list("jobs", self.instance)
        pods = self.cluster.list("pods", f"{self.instance},{STARTED}")
        scaled = any(deployment["spec"]["replicas"] for deployment in deployments)
        return not scaled and all(job["spec"].get("suspend") for job in jobs) and not pods

    def until_restored(self) -> None:
        """Waits until replicas and Jobs are restored."""
        until("replicas and suspend to be put back", self.is_restored, 60, self.describe)
