"""A release of the chart, as its users handle it: helm changes it, `ladder` and the operator's web port tell of it."""

import json
from collections.abc import Callable
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

# What the operator scales, and what it makes run.
SCALED = "app.kubernetes.io/component in (service,companion,inference)"
STARTED = "app.kubernetes.io/component in (service,companion,inference,worker)"

INSTALL_SECONDS = 120
RUN_SECONDS = 150

Values = dict[str, Any]


class Release:
    """One release, changed by one major version of Helm."""

    def __init__(self, cluster: Cluster, name: str, helm: str, work: Path) -> None:
        self.cluster = cluster
        self.name = name
        self.helm = helm
        self.work = work
        # Helm 4 by itself also waits for Jobs, and a suspended one never starts.
        self.wait = "--wait=legacy" if helm == HELM_4 else "--wait"
        self.instance = f"app.kubernetes.io/instance={name}"

    # --- changing it

    def install(self, values: Values | None = None) -> None:
        """Install and wait until all of it is ready."""
        self.cluster.run(*self.helm_command("install", values), seconds=INSTALL_SECONDS)

    def upgrade(self, values: Values, *options: str) -> None:
        """Upgrade and wait until all of it is ready."""
        self.cluster.run(*self.helm_command("upgrade", values), *options, seconds=INSTALL_SECONDS)

    def helm_command(self, verb: str, values: Values | None = None) -> list[str]:
        """How helm is called: the test's values, and these over them."""
        file = self.work / f"{self.name}.json"
        file.write_text(json.dumps(values or {}))
        common = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.cluster.namespace]
        wait = [self.wait, "--timeout", f"{INSTALL_SECONDS - 10}s"]
        return [self.helm, verb, self.name, str(CHART), *common, *wait, "-f", str(VALUES), "-f", str(file)]

    def uninstall(self) -> None:
        """Remove it and wait until its pods are gone; what it keeps is kept."""
        common = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.cluster.namespace]
        self.cluster.run(self.helm, "uninstall", self.name, *common, "--wait", seconds=INSTALL_SECONDS)

    # --- reading it

    def component(self, component: str) -> str:
        """The selector of a component of this release."""
        return f"{self.instance},app.kubernetes.io/component={component}"

    def pods(self, component: str) -> list[Object]:
        """Pods of a component that aren't on their way out."""
        pods = self.cluster.list("pods", self.component(component))
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def ready_pod(self, component: str, seconds: float = 60) -> Object:
        """The first Ready pod of a component."""
        return until(
            f"a ready pod of the {component}",
            lambda: next((pod for pod in self.pods(component) if is_ready(pod)), None),
            seconds,
            lambda: self.describe(),
        )

    def web(self, path: str) -> Any:
        """What the operator's web port answers."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """The same, as it is."""
        service = next(iter(self.cluster.list("services", self.component("operator"))))
        return self.cluster.reach(name_of(service), "web", path)

    def status(self) -> Any:
        """`/api/status`; nothing while no operator answers."""
        service = next(iter(self.cluster.list("services", self.component("operator"))))
        path = f"/api/v1/namespaces/{self.cluster.namespace}/services/{name_of(service)}:web/proxy/api/status"
        done = self.cluster.attempt(*self.cluster.kubectl_command("get", "--raw", path))
        return json.loads(done.stdout) if done.returncode == 0 else None

    def until_status(self, what: str, good: Callable[[Any], bool], seconds: float = RUN_SECONDS) -> Any:
        """The status as soon as it is as wanted."""

        def look() -> Any:
            status = self.status()
            return status if status and good(status) else None

        return until(what, look, seconds, self.describe)

    def until_trial(self, run: str, tier: int) -> Any:
        """The status in which a tier's trial is being measured."""

        def good(status: Any) -> bool:
            step = status["step"] or {"step": ""}
            of_tier = (status["tier"] or "").endswith(f"/{tier}")
            return bool(status["run_id"] == run and of_tier and step["step"] == "trial")

        return self.until_status(f"the trial of tier {tier} of run {run}", good)

    def until_run_ends(self, run: str, seconds: float = RUN_SECONDS) -> Any:
        """The status in which a run has ended, one way or the other."""
        return self.until_status(
            f"the end of run {run}",
            lambda status: status["run_id"] == run and status["state"] == "finished",
            seconds,
        )

    def wait_for_verdict(self) -> str:
        """What `ladder assert --wait` says until the run has ended, in both streams' own order."""
        done = self.cluster.attempt(*self.ladder_command("assert", "--wait"), seconds=RUN_SECONDS)
        assert done.returncode == 0, f"{done.stderr}{done.stdout}{self.describe()}"
        return done.stderr + done.stdout

    def until_said(self, words: str, seconds: float = 60) -> None:
        """Wait until `ladder status` says so; it reaches an operator that isn't ready, too."""

        def said() -> bool:
            return words in self.cluster.attempt(*self.ladder_command("status")).stdout

        until(f"ladder status to say: {words}", said, seconds, self.describe)

    def events(self, reason: str) -> list[Object]:
        """Events of a reason about the operator's pod."""
        pods = {pod["metadata"]["uid"] for pod in self.pods("operator")}
        events = self.cluster.list("events.events.k8s.io")
        return [event for event in events if event["reason"] == reason and event["regarding"]["uid"] in pods]

    def describe(self) -> str:
        """How things stand, for the message of a test that waited in vain."""
        pods = self.cluster.kubectl("get", "deployments,jobs,pods", "--selector", self.instance)
        events = self.cluster.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-8:]
        return "\n".join([f"Status: {json.dumps(self.status())}", pods, *events])

    def ladder(self, *arguments: str) -> str:
        """What `ladder` prints for this release, through the cluster's own port-forward."""
        return self.cluster.run(*self.ladder_command(*arguments))

    def ladder_command(self, *arguments: str) -> list[str]:
        """How `ladder` is called."""
        kubeconfig = ["--kubeconfig", str(self.cluster.kubeconfig)]
        where = [*kubeconfig, "--namespace", self.cluster.namespace, "--release", self.name]
        return [str(LADDER), *arguments, *where]

    def fetch(self, run: str, folder: Path) -> Path:
        """The bundle of a run, fetched as its users do it, but for the report."""
        self.ladder("fetch", run, "--results", str(folder), "--no-report")
        return folder / run

    # --- what has to be put back

    def is_put_back(self) -> bool:
        """Whether every service is scaled to none and every Job is suspended, and none of their pods is left."""
        deployments = self.cluster.list("deployments", f"{self.instance},{SCALED}")
        jobs = self.cluster.list("jobs", self.instance)
        pods = self.cluster.list("pods", f"{self.instance},{STARTED}")
        scaled = any(deployment["spec"]["replicas"] for deployment in deployments)
        return not scaled and all(job["spec"].get("suspend") for job in jobs) and not pods

    def until_put_back(self) -> None:
        """Wait until it is so."""
        until("replicas and suspend to be put back", self.is_put_back, 60, self.describe)
