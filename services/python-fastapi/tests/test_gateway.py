"""Tests of the whole gateway: a process that is reached through sockets, and whose inference refuses connections."""

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets.asyncio.client as client
from websockets.exceptions import ConnectionClosed, InvalidStatus

START = '{"type":"start"}'
FRAME = bytes(640)


@asynccontextmanager
async def gateway(**settings: str) -> AsyncIterator[tuple[str, str, asyncio.subprocess.Process]]:
    """Starts a gateway. Yields the URL of its WebSocket, the URL of its metrics port, and the process."""
    # Nothing listens at the inference's address, so each request fails at once.
    environment = {"PORT": "0", "WORKER_THREADS": "1", "FLUSH_INTERVAL_MS": "50", "INFERENCE_URL": "http://127.0.0.1:1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "python_fastapi", env=os.environ | environment | settings, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        assert ready["pid"] == process.pid
        yield f"ws://{ready['address']}/ws/stt", f"http://{ready['metrics_address']}", process
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 6) == 0
        assert await process.stdout.read() == b""
    finally:
        if process.returncode is None:
            process.kill()


async def get(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310
            text: str = response.read().decode()
            return text

    return await asyncio.to_thread(fetch)


def test_a_batch_without_inference_is_answered_by_an_error_and_is_in_the_books() -> None:
    async def run() -> tuple[dict[str, Any], dict[str, Any], str]:
        async with gateway() as (url, metrics, _), client.connect(url) as socket:
            await socket.send(START)
            await socket.send(FRAME)
            response = json.loads(await socket.recv())
            return response, json.loads(await get(f"{metrics}/stats")), await get(f"{metrics}/metrics")

    response, stats, text = asyncio.run(run())
    assert (response["type"], response["kind"], response["frames"]) == ("error", "connection_reset", 1)
    assert stats["messages"]["received"] == 2
    assert stats["messages"]["dropped"] == {"connection_reset": 1}
    assert stats["inference"]["failed"]["connection_reset"] == stats["inference"]["requests"] == 1
    assert "service_process_resident_bytes " in text


@pytest.mark.parametrize(
    ("messages", "code"),
    [(["{}"], 1002), ([FRAME], 1002), ([START, "text"], 1002), ([START, bytes(641)], 1003), ([bytes(65_537)], 1009)],
)
def test_a_message_that_breaks_the_rules_is_answered_by_a_close_frame(messages: list[str | bytes], code: int) -> None:
    async def run() -> int | None:
        async with gateway() as (url, _, _), client.connect(url) as socket:
            for message in messages:
                await socket.send(message)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            return closed.value.rcvd.code if closed.value.rcvd else None

    assert asyncio.run(run()) == code


def test_sigterm_ends_sessions_with_1001_after_their_last_batch() -> None:
    async def run() -> tuple[str, int | None]:
        async with gateway(FLUSH_INTERVAL_MS="60000") as (url, metrics, process), client.connect(url) as socket:
            await socket.send(START)
            await socket.send(FRAME)
            # Both, the start and the frame: a frame that arrives after the signal isn't in the last batch.
            while json.loads(await get(f"{metrics}/stats"))["messages"]["received"] < 2:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            response = json.loads(await socket.recv())
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            return response["kind"], closed.value.rcvd.code if closed.value.rcvd else None

    assert asyncio.run(run()) == ("connection_reset", 1001)


def test_a_handshake_is_refused_by_its_status() -> None:
    async def run() -> list[int]:
        statuses = []
        async with gateway(MAX_CONNECTIONS="1") as (url, _, _), client.connect(url):
            for address in (url, url.replace("/ws/stt", "/elsewhere")):
                with pytest.raises(InvalidStatus) as refused:
                    await client.connect(address)
                statuses.append(refused.value.response.status_code)
        return statuses

    assert asyncio.run(run()) == [503, 404]


def test_several_workers_are_one_gateway() -> None:
    async def run() -> tuple[dict[str, Any], str]:
        async with gateway(WORKER_THREADS="2") as (url, metrics, _):
            for _ in range(8):
                async with client.connect(url) as socket:
                    await socket.send(START)
                    await socket.send(FRAME)
                    assert json.loads(await socket.recv())["frames"] == 1
            return json.loads(await get(f"{metrics}/stats")), await get(f"{metrics}/readyz")

    stats, ready = asyncio.run(run())
    assert stats["messages"]["received"] == 16
    assert ready == "ready\n"
