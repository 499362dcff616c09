"""Starts several processes of a service behind one ready line, as replicas behind a load balancer would be.
`ladder` starts this program for a ladder with `replicas` in its plan.

Usage: replicas.py COUNT COMMAND [ARGUMENT...]

Each process has its own ports and an equal part of this process's CPUs. The ready line lists all addresses and all
metrics addresses, in the same order, separated by commas; `ladder` reads all of them and adds up their counters. When
one process ends, this program ends the others. It uses only Python's standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
# A service gets five seconds to end after SIGTERM (services/README.md); then it gets SIGKILL.
STOP_SECONDS = 5.5


class Replica:
    """One process of the service."""

    def __init__(self, command: Sequence[str], cpus: set[int]) -> None:
        def prepare() -> None:
            # The kernel sends SIGTERM to the replica when this process ends, for any reason.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            os.sched_setaffinity(0, cpus)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())

        # PORT and METRICS_PORT of the environment are meant for one process; the kernel chooses each replica's ports.
        environment = os.environ | {"PORT": "0", "METRICS_PORT": "0"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=prepare)
        self.ready: dict[str, Any] = {}

    def wait_until_ready(self) -> None:
        """Waits for the ready line on standard output. Later output is read and discarded, so that the pipe can't fill.

        Exits if the process ends before it prints the line.
        """
        assert self.process.stdout is not None
        # Lines before the ready line, such as a banner, are skipped.
        line = next((line for line in self.process.stdout if line.startswith("{")), "")
        if not line:
            sys.exit(f"replicas: {self.process.args!r} ended with status {self.process.wait()} before it was ready")
        self.ready = json.loads(line)
        threading.Thread(target=self.process.stdout.read, daemon=True).start()


def parts(cpus: Sequence[int], count: int) -> list[set[int]]:
    """The CPUs of each of `count` processes: equal parts, or all of them where there are fewer CPUs than processes."""
    if len(cpus) < count:
        return [set(cpus)] * count
    each = len(cpus) // count
    return [set(cpus[index * each : (index + 1) * each]) for index in range(count)]


def stop(replicas: Sequence[Replica]) -> int:
    """Ends all replicas, with SIGKILL after `STOP_SECONDS`. Returns the first exit status that isn't 0, else 0."""
    for replica in replicas:
        if replica.process.poll() is None:
            replica.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for replica in replicas:
        try:
            replica.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            replica.process.kill()
            replica.process.wait()
    return next((replica.process.returncode for replica in replicas if replica.process.returncode), 0)


def main() -> int:
    """Starts the replicas, prints their ready line, and waits for SIGTERM or SIGINT, or until one of them ends."""
    # `sigwait` takes these signals below. Until then they stay pending.
    handled_signals = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, handled_signals)
    count, command = int(sys.argv[1]), sys.argv[2:]
    replicas = [Replica(command, cpus) for cpus in parts(sorted(os.sched_getaffinity(0)), count)]
    for replica in replicas:
        replica.wait_until_ready()
    of_all = {field: ",".join(replica.ready[field] for replica in replicas) for field in ("address", "metrics_address")}
    print(json.dumps({"event": "ready", **of_all, "pid": os.getpid()}), flush=True)
    # SIGCHLD also arrives when a replica is stopped or continued, which is not its end.
    while signal.sigwait(handled_signals) == signal.SIGCHLD and all(
        replica.process.poll() is None for replica in replicas
    ):
        pass
    return stop(replicas)


if __name__ == "__main__":
    sys.exit(main())
