"""Acknowledges messages, and sends news to the members of a room. Usage: server.py PORT"""

import sys
from typing import Any

import socketio
import uvicorn

server = socketio.AsyncServer(async_mode="asgi")


@server.event
async def message(_sid: str, data: Any) -> Any:
    return data


@server.event
async def join(sid: str, room: str) -> str:
    await server.enter_room(sid, room)
    return "ok"


@server.event
async def publish(_sid: str, room: str, news: Any) -> None:
    await server.emit("news", news, room=room)


app = socketio.ASGIApp(server)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", ws_per_message_deflate=False)
