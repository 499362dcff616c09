"""Sends back what it gets, after a known delay, and stops once for a known time, as a frozen process would.

Prints its port when it listens. For each line on standard input it prints what it has seen so far, and it ends when
standard input closes. Usage: server.py [--delay-ms D] [--freeze-after-seconds A --freeze-seconds F]
"""

import argparse
import asyncio
import json
import sys
import threading
import time

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

PARTS = {"p50": 0.5, "p99": 0.99, "max": 1.0}

parser = argparse.ArgumentParser()
parser.add_argument("--delay-ms", type=float, default=0, help="between a message and its reply")
parser.add_argument("--freeze-after-seconds", type=float, default=0, help="from the first message until the freeze")
parser.add_argument("--freeze-seconds", type=float, default=0, help="how long nothing is answered; 0: no freeze")
options = parser.parse_args()


class Books:
    """What the server has seen. `delays_ns` has the actual delay of each message, if one was configured."""

    messages = 0
    connections = 0
    delays_ns: list[int] = []  # noqa: RUF012
    frozen_seconds = 0.0


class Echo(WSListener):
    def on_ws_connected(self, _: WSTransport) -> None:
        Books.connections += 1

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        match frame.msg_type:
            case WSMsgType.PING:
                transport.send_pong(frame.get_payload_as_bytes())
            case WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code(), frame.get_close_message())
                transport.disconnect()
            case kind:
                Books.messages += 1
                if Books.messages == 1 and options.freeze_seconds:
                    asyncio.get_running_loop().call_later(options.freeze_after_seconds, freeze)
                if options.delay_ms:
                    delayed(transport, kind, frame.get_payload_as_bytes())
                else:
                    transport.send(kind, frame.get_payload_as_bytes())


def delayed(transport: WSTransport, kind: WSMsgType, payload: bytes) -> None:
    """Sends the reply when the delay is over, and notes how long that was."""
    begin = time.monotonic_ns()

    def send() -> None:
        Books.delays_ns.append(time.monotonic_ns() - begin)
        transport.send(kind, payload)

    asyncio.get_running_loop().call_later(options.delay_ms / 1000, send)


def freeze() -> None:
    """Stops the only thread that reads and writes."""
    begin = time.monotonic()
    time.sleep(options.freeze_seconds)
    Books.frozen_seconds = time.monotonic() - begin


def report() -> dict[str, object]:
    delays = sorted(Books.delays_ns)
    last = len(delays) - 1
    at = {name: delays[min(int(part * len(delays)), last)] for name, part in PARTS.items() if delays}
    mean = {"mean": sum(delays) / len(delays)} if delays else {}
    return {
        "messages": Books.messages,
        "connections": Books.connections,
        "frozen_seconds": Books.frozen_seconds,
        "delays_ms": {name: value / 1e6 for name, value in (mean | at).items()},
    }


async def main() -> None:
    server = await ws_create_server(lambda _: Echo(), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def listen() -> None:
        for _ in sys.stdin:
            # In the server's own thread, so that a frozen server says nothing.
            loop.call_soon_threadsafe(lambda: print(json.dumps(report()), flush=True))
        loop.call_soon_threadsafe(stopped.set)

    threading.Thread(target=listen, daemon=True).start()
    await stopped.wait()


uvloop.run(main())
