"""The gateway's settings: flags, and environment variables of the same meaning. Flags win.

An invalid value ends the program with status 2 and a message that names the flag or the variable.
"""

import argparse
import ipaddress
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from python_fastapi import NAME

_INFERENCE_URL = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+):(\d{1,5})/?")


@dataclass(frozen=True, slots=True)
class Config:
    """Validated settings. Times are in milliseconds; services/README.md, "Settings", describes each setting."""

    host: str
    port: int
    metrics_port: int
    inference_url: str
    cpu_passes: int
    model_delay_ms: int
    flush_interval_ms: int
    flush_phase_jitter_ms: int
    inference_timeout_ms: int
    inference_http_clients: int
    worker_threads: int
    max_buffered_frames: int
    max_connections: int

    def workers(self) -> int:
        """Returns the number of processes or threads that serve sessions: one per usable CPU if the setting is 0."""
        return self.worker_threads or usable_cpus()


def usable_cpus() -> int:
    """Returns the number of CPUs that the affinity and the cgroup's quota allow this process to use; at least one."""
    cpus = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:  # noqa: PTH123
            quota, period = file.read().split()
        return max(1, min(cpus, int(quota) // int(period)))
    except (OSError, ValueError):
        return cpus


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text) or not minimum <= int(text) <= maximum:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer from {minimum} to {maximum}")
        return int(text)

    return parse


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address") from None


def _inference_url(text: str) -> str:
    match = _INFERENCE_URL.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not http://host:port")
    return text.rstrip("/")


_PORT = _integer(0, 65_535)
# Name, default, parser, help text.
_SETTINGS: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("host", "127.0.0.1", _address, "address to listen on"),
    ("port", "3000", _PORT, "port of the WebSocket; 0: the kernel picks"),
    ("metrics_port", "0", _PORT, "port of /stats and /metrics; 0: the kernel picks"),
    ("inference_url", "http://127.0.0.1:9000", _inference_url, "the inference, as http://host:port"),
    ("cpu_passes", "4", _integer(1, 65_536), "passes that the inference makes over each batch"),
    ("model_delay_ms", "75", _integer(0, 2**63 - 1), "the model's delay that partials name; no other effect"),
    ("flush_interval_ms", "1000", _integer(10, 60_000), "time between two flush ticks of a session"),
    ("flush_phase_jitter_ms", "0", _integer(0, 60_000), "ticks are shifted once by a random time of 0 to this"),
    ("inference_timeout_ms", "2000", _integer(1, 600_000), "longest time from a tick to the end of the answer"),
    ("inference_http_clients", "1", _integer(1, 256), "HTTP/2 connections to the inference, per event loop"),
    ("worker_threads", "0", _integer(0, 256), "event loops that serve sessions; 0: as many as CPUs may be used"),
    ("max_buffered_frames", "200", _integer(1, 100_000), "frames that may wait in a session"),
    ("max_connections", "0", _integer(0, 2**31), "connections that may be open; 0: no limit"),
)


def parse(arguments: Sequence[str], environment: Mapping[str, str], version: str) -> Config:
    """Returns the settings. Ends the program after `--version` or `--help`, and with status 2 if a value is invalid."""
    parser = argparse.ArgumentParser(
        prog=NAME, description="Speech-to-text gateway on FastAPI and Granian", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    for name, default, parse_value, help_text in _SETTINGS:
        # argparse would parse a default that is a string, too, but its error would name the flag and not the variable.
        # So variables and defaults are parsed below.
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=parse_value, help=f"{help_text} [{name.upper()}, {default}]"
        )
    values = vars(parser.parse_args(arguments))
    if values.pop("version"):
        print(version)
        parser.exit()
    for name, default, parse_value, _ in _SETTINGS:
        if values[name] is None:
            try:
                values[name] = parse_value(environment.get(name.upper(), default))
            except argparse.ArgumentTypeError as error:
                parser.error(f"environment variable {name.upper()}: {error}")
    return Config(**values)
