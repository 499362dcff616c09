"""The start and the stop of a process: its port, its ready line, its signals."""

import asyncio
import json
import os
import signal
import socket


def reserve(host: str, port: int) -> socket.socket:
    """Finds a port. Granian binds it again, beside this socket: what doesn't listen gets no connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((host, port))
    return reserved


def say_ready(address: tuple[str, int], metrics_address: tuple[str, int]) -> None:
    """Prints the ready line: the only thing on standard output."""
    hosts = {"address": address, "metrics_address": metrics_address}
    texts = {key: f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for key, (host, port) in hosts.items()}
    print(json.dumps({"event": "ready", **texts, "pid": os.getpid()}, separators=(",", ":")), flush=True)


def stop_signal() -> asyncio.Event:
    """Set when the program is asked to stop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
