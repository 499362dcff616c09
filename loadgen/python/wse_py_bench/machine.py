"""Reads the kernel's data on the machine, this process, and the service's process if it runs on this machine.

CPU times come from exact clocks, never from sampled ticks.
"""

import resource
import time
from dataclasses import dataclass
from pathlib import Path

from bench_format.schemas import Environment

BYTES_PER_KIB = 1024
# State TCP_LISTEN in /proc/net/tcp.
TCP_LISTEN = "0A"
# The CPU clock of another process: `CPUCLOCK_SCHED` of the kernel's posix-timers.h.
CPUCLOCK_SCHED = 2


@dataclass(frozen=True)
class Usage:
    """CPU time and resident memory of a process."""

    cpu_ns: int
    rss_bytes: int


def environment() -> Environment:
    """The properties of the machine that affect results; those that can't be read are empty."""
    cpuinfo = _read_text("/proc/cpuinfo")

    def sysctl(name: str) -> str:
        return _read_text(f"/proc/sys/net/{name}").replace("\t", " ")

    return Environment(
        host=_read_text("/proc/sys/kernel/hostname"),
        kernel=_read_text("/proc/sys/kernel/osrelease"),
        cpu_model=_field(cpuinfo, "model name"),
        cpus=sum(line.startswith("processor") for line in cpuinfo.splitlines()),
        cpus_allowed=_field(_read_text("/proc/self/status"), "Cpus_allowed_list"),
        memory_bytes=_kibibytes(_field(_read_text("/proc/meminfo"), "MemTotal")),
        virtualised="hypervisor" in _field(cpuinfo, "flags").split(),
        congestion_control=sysctl("ipv4/tcp_congestion_control"),
        somaxconn=sysctl("core/somaxconn"),
        port_range=sysctl("ipv4/ip_local_port_range"),
        tcp_rmem=sysctl("ipv4/tcp_rmem"),
        tcp_wmem=sysctl("ipv4/tcp_wmem"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    )


def raise_open_files() -> None:
    """Raises this process's soft limit of open files to the hard limit."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def peak_rss_bytes() -> int:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_KIB


def usage(pid: int) -> Usage | None:
    """Reads the usage of a process; `None` when it has ended."""
    try:
        cpu_ns = time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)
    except OSError:
        return None
    return Usage(cpu_ns, _kibibytes(_field(_read_text(f"/proc/{pid}/status"), "VmRSS")))


def listener_of(port: int) -> int | None:
    """The id of the process that listens on a local port; `None` if there is none or /proc doesn't show it."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in _read_text(f"/proc/net/{name}").splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == TCP_LISTEN}
    processes = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return next((pid for pid in processes if inodes & _open_files(pid)), None) if inodes else None


def cpu_list(text: str) -> set[int]:
    """Parses a list of CPUs such as `0-1,4`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _open_files(pid: int) -> set[str]:
    found = set()
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            try:
                found.add(str(file.readlink()))
            except OSError:
                continue
    except OSError:
        return found
    return found


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _field(text: str, name: str) -> str:
    """The value of the first `name: value` line; empty without one."""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _kibibytes(text: str) -> int:
    return int(text.split()[0]) * BYTES_PER_KIB if text else 0
