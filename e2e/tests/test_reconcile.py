"""What a GitOps controller does at the API, through a whole run; and releases that are rolled back."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundle import Bundle
from cluster import Cluster, Object, is_ready, name_of
from release import CHART, HELM_3, HELM_4, INSTALL_SECONDS, Release

TIERS = [10, 20]
INTERVAL_SECONDS = 2
FLUX = CHART / "flux/release.yaml"


class Reconciler:
    """A context manager that applies the release's manifests again and again, as Flux corrects drift."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.applied = 0
        self.failure: BaseException | None = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._apply_repeatedly, daemon=True)

    def __enter__(self) -> "Reconciler":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join(60)
        assert not self.failure, f"the manifests were not applied to the end: {self.failure}"

    def _apply_repeatedly(self) -> None:
        try:
            while not self.stopped.wait(INTERVAL_SECONDS):
                self.apply(without_ignored(self.manifests()))
                self.applied += 1
        except BaseException as error:
            self.failure = error

    def manifests(self) -> list[Object]:
        """What Helm has installed last."""
        release, cluster = self.release, self.release.cluster
        location = ["--namespace", cluster.namespace, "--kubeconfig", str(cluster.kubeconfig)]
        text = cluster.run(release.helm, "get", "manifest", release.name, *location)
        return [document for document in yaml.safe_load_all(text) if document]

    def apply(self, objects: list[Object]) -> None:
        """Server-side, and its own even where another manager has changed a field."""
        options = ["--server-side", "--force-conflicts", "--field-manager=helm-controller"]
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.release.cluster.kubectl("apply", *options, "-f", "-", stdin=items)


def without_ignored(manifests: list[Object]) -> list[Object]:
    """The manifests without the fields that Flux' example ignores."""
    rules = yaml.safe_load(FLUX.read_text())["spec"]["driftDetection"]["ignore"]
    for manifest in manifests:
        for rule in rules:
            if rule["target"]["kind"] == manifest["kind"] and selects(rule["target"]["labelSelector"], manifest):
                for path in rule["paths"]:
                    *folders, field = path.strip("/").split("/")
                    place: Any = manifest
                    for folder in folders:
                        place = place[folder]
                    place.pop(field, None)
    return manifests


def selects(selector: str, manifest: Object) -> bool:
    """Whether a selector of the form `key=value` or `key in (a, b)` selects an object."""
    key, _, values = selector.replace("=", " in ").partition(" in ")
    return manifest["metadata"]["labels"].get(key) in [value.strip() for value in values.strip("()").split(",")]


@pytest.fixture
def corrected(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A release of its own, because another field manager owns its fields in the end."""
    corrected = Release(cluster, "corrected", HELM_4, tmp_path)
    corrected.install({"run": {"id": "reconciled"}})
    yield corrected
    corrected.uninstall()


def test_drift_correction_through_a_whole_run_disturbs_nothing(corrected: Release, tmp_path: Path) -> None:
    with Reconciler(corrected) as reconciler:
        corrected.until_run_ends("reconciled")
        corrected.until_restored()
    assert reconciler.applied > len(TIERS)
    bundle = Bundle(corrected.fetch("reconciled", tmp_path))
    assert (bundle.valid(), bundle.attempts()) == (len(TIERS), [1, 1])


@pytest.fixture(params=[pytest.param(HELM_3, id="helm-3"), pytest.param(HELM_4, id="helm-4")])
def own(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A release of its own, which is rolled back."""
    own = Release(cluster, "back", request.param, tmp_path)
    own.install()
    yield own
    own.uninstall()


@pytest.mark.long
def test_an_upgrade_that_fails_is_rolled_back_and_the_release_still_climbs(own: Release, tmp_path: Path) -> None:
    operator = {"image": {"repository": "no-such-image"}}
    broken = own.helm_command("upgrade", {"operator": operator})
    broken[broken.index("--timeout") + 1] = "15s"
    # What Helm 4 calls the same as Helm 3's `--atomic`.
    undo = "--atomic" if own.helm == HELM_3 else "--rollback-on-failure"
    failed = own.cluster.attempt(*broken, undo, seconds=INSTALL_SECONDS)
    assert failed.returncode != 0
    own.ready_pod("operator")
    own.upgrade({"run": {"id": "after"}})
    own.until_run_ends("after")
    own.until_restored()
    assert Bundle(own.fetch("after", tmp_path)).valid() == len(TIERS)


@pytest.mark.long
def test_a_rollback_to_the_values_of_an_earlier_run_measures_nothing_again(release: Release, tmp_path: Path) -> None:
    for run in ("earlier", "later"):
        release.upgrade({"run": {"id": run}})
        release.until_run_ends(run)
        release.until_restored()
    before = Bundle(release.fetch("earlier", tmp_path / "before")).files()
    location = ["--namespace", release.cluster.namespace, "--kubeconfig", str(release.cluster.kubeconfig)]
    release.cluster.run(release.helm, "rollback", release.name, *location, release.wait, seconds=INSTALL_SECONDS)
    release.until_run_ends("earlier")
    assert Bundle(release.fetch("earlier", tmp_path / "after")).files() == before
    operators = release.pods("operator")
    assert [name_of(pod) for pod in operators if is_ready(pod)], "the operator of the rolled back release is ready"
