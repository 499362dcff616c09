"""The API server is away for longer than the operator keeps its Lease: the trial is repeated, and the run goes on."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bundle import Bundle
from release import Release

TIERS = [10, 20]
# Long enough for the outage to begin in the middle of the window.
WINDOW_SECONDS = 8
# The operator stops climbing after 11 s without its Lease, which another one may take after 15 s.
OUTAGE_SECONDS = 25
RUN_SECONDS = 240


@pytest.fixture
def api_server(own_cluster: Path) -> Iterator[int]:
    """The process id of the API server of this checkout's cluster, which runs again afterwards."""
    [found] = api_servers(own_cluster)
    yield found
    os.kill(found, signal.SIGCONT)


def api_servers(state: Path) -> list[int]:
    """Ids of the processes of an API server that uses the certificates in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            program, *arguments = (entry / "cmdline").read_text().split("\0") if entry.name.isdigit() else ("",)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if program.endswith("/kube-apiserver") and f"--tls-cert-file={state}/pki/apiserver.crt" in arguments:
            found.append(int(entry.name))
    return found


def test_an_outage_of_the_api_server_costs_only_the_trial_in_flight(
    release: Release, tmp_path: Path, api_server: int
) -> None:
    release.upgrade({"run": {"id": "outage"}, "plan": {"window_seconds": WINDOW_SECONDS}})
    before = release.until_trial("outage", TIERS[1])
    os.kill(api_server, signal.SIGSTOP)
    time.sleep(OUTAGE_SECONDS)
    os.kill(api_server, signal.SIGCONT)

    after = release.until_run_ends("outage", RUN_SECONDS)
    release.until_restored()
    bundle = Bundle(release.fetch("outage", tmp_path))
    assert bundle.valid() == len(TIERS), f"trials: {bundle.run()['trials']}"
    first, second = bundle.attempts()
    assert first == 1, "a finished trial is kept"
    assert second > 1, "the trial in flight was repeated"
    assert after["trials"][0] == before["trials"][0]
