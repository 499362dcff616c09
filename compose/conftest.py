"""Settings for containers in these tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Makes the modules beside the tests importable.
sys.path.insert(0, str(Path(__file__).parent / "tests"))


@pytest.fixture(scope="session", autouse=True)
def _runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Configures podman with runc and without systemd, because crun rejects a mixture of cgroup versions."""
    settings = tmp_path_factory.mktemp("podman") / "containers.conf"
    settings.write_text('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n')
    previous = os.environ.get("CONTAINERS_CONF")
    os.environ["CONTAINERS_CONF"] = str(settings)
    yield
    if previous is None:
        del os.environ["CONTAINERS_CONF"]
    else:
        os.environ["CONTAINERS_CONF"] = previous
