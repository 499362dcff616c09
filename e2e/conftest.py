"""Shared fixtures: one cluster, one namespace, and one release of the chart that Helm 4 installs."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Makes the modules beside the tests importable.
sys.path.insert(0, str(Path(__file__).parent / "tests"))
from api import proxy
from cluster import Cluster
from measured import FIGURES
from release import HELM_4, Release

NAMESPACE = "ws-ladder-e2e"
SHARED_MEMORY = Path("/dev/shm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs test_install.py first, because it checks the state before the first run, and test_nodes.py last.

    A further node would get pods of other tests, too.
    """
    order = {"test_install.py": 0, "test_nodes.py": 2}
    items.sort(key=lambda item: order.get(item.path.name, 1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what was measured beside the tests."""
    if FIGURES:
        terminalreporter.section("the time around trials")
        for line in FIGURES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster with an empty namespace, which is deleted afterwards."""
    kubeconfig = os.environ.get("E2E_CLUSTER")
    assert kubeconfig, "E2E_CLUSTER names no kubeconfig file; run the tests by: just e2e"
    with proxy(Path(kubeconfig)) as api:
        cluster = Cluster(Path(kubeconfig), NAMESPACE, api)
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", seconds=120)
        cluster.kubectl("create", "namespace", NAMESPACE)
        # The API server refuses every pod of ours that could do more than it has to.
        cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        yield cluster
        cluster.kubectl("delete", "namespace", NAMESPACE, seconds=120)


@pytest.fixture(scope="session")
def own_cluster() -> Path:
    """The folder of the cluster, where it is the one of this checkout and its nodes may be disturbed."""
    small_volume = os.environ.get("E2E_SMALL_VOLUME")
    if not small_volume or os.geteuid() != 0:
        pytest.skip("only the nodes of this checkout's own cluster may be disturbed")
    return Path(small_volume).parent


@pytest.fixture(scope="session")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The release that most tests share; it generates no load until a test sets a run id."""
    release = Release(cluster, "e2e", HELM_4, tmp_path_factory.mktemp("release"))
    release.install()
    yield release
    release.uninstall()


@pytest.fixture
def ballast() -> Iterator[Path]:
    """A file in memory, whose pages count for the cgroup of the process that writes them."""
    file = SHARED_MEMORY / "ws-ladder-e2e-ballast"
    yield file
    file.unlink(missing_ok=True)
