"""The start and the stop of a process: it reserves the port, prints the ready line and handles the signals."""

import asyncio
import json
import os
import signal
import socket


def reserve_port(host: str, port: int) -> socket.socket:
    """Binds `port`, or for 0 one that the kernel picks, and returns the socket.

    Granian binds the same port again. The returned socket never listens, so it gets no connections.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((host, port))
    return reserved


def print_ready_line(address: tuple[str, int], metrics_address: tuple[str, int]) -> None:
    """Prints the ready line, the only output on standard output."""
    hosts = {"address": address, "metrics_address": metrics_address}
    texts = {key: f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for key, (host, port) in hosts.items()}
    print(json.dumps({"event": "ready", **texts, "pid": os.getpid()}, separators=(",", ":")), flush=True)


def stop_signal() -> asyncio.Event:
    """Installs signal handlers and returns the event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    return stop
