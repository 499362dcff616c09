"""aiohttp's WebSocket client, unmodified, against our server."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgpack  # type: ignore[import-untyped]
from harness import DEADLINE_SECONDS, Running

from bench_server import token

Socket = aiohttp.ClientWebSocketResponse


def talk(running: Running, act: Callable[[Socket], Awaitable[None]], **options: Any) -> None:
    """Connects with a token, as an aiohttp application would, and runs `act` with the socket."""

    async def session() -> None:
        cookies = {"access_token": token(int(time.time()))}
        async with (
            aiohttp.ClientSession(cookies=cookies) as client,
            asyncio.timeout(DEADLINE_SECONDS),
            # The client offers compression, which the server declines.
            client.ws_connect(running.url(), compress=15, **options) as socket,
        ):
            await act(socket)

    asyncio.run(session())


def test_the_client_connects_and_its_messages_arrive(running: Running) -> None:
    async def act(socket: Socket) -> None:
        assert (await socket.receive_json())["t"] == "server_ready"
        assert not socket.compress
        await socket.send_json({"t": "order", "p": {"qty": 2}})
        await socket.send_bytes(b"M:" + msgpack.packb({"t": "packed", "p": {"n": 1}}))

    talk(running, act)
    kinds = {data["t"]: data["p"] for kind, _, data in running.drain(3) if kind == "msg"}
    assert kinds == {"order": {"qty": 2}, "packed": {"n": 1}}


def test_the_client_receives_text_binary_and_pongs(running: Running) -> None:
    async def act(socket: Socket) -> None:
        ready = await socket.receive_json()
        connection_id = ready["p"]["details"]["connection_id"]
        running.server.send(connection_id, '{"t":"tick"}')
        running.server.send_bytes(connection_id, b"\x00\xff")
        assert json.loads(await socket.receive_str()) == {"t": "tick"}
        assert await socket.receive_bytes() == b"\x00\xff"
        await socket.ping(b"are you there")
        reply = await socket.receive()
        assert (reply.type, reply.data) == (aiohttp.WSMsgType.PONG, b"are you there")

    talk(running, act, autoping=False)


def test_large_messages_arrive_complete(running: Running) -> None:
    text = "x" * 1_000_000

    async def act(socket: Socket) -> None:
        await socket.receive()
        await socket.send_str(json.dumps({"t": "large", "p": {"d": text}}))

    talk(running, act)
    assert [data["p"]["d"] == text for kind, _, data in running.drain(2) if kind == "msg"] == [True]


def test_a_refused_client_gets_the_reason(running: Running) -> None:
    async def session() -> None:
        async with aiohttp.ClientSession() as client, client.ws_connect(running.url()) as socket:
            error = await socket.receive_json()
            assert error["p"]["code"] == "AUTH_REQUIRED"
            await socket.receive()
            assert socket.close_code == 4401

    asyncio.run(session())
