"""Sends back what it gets. Usage: server.py PORT"""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.endpoints import WebSocketEndpoint
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket


class Echo(WebSocketEndpoint):
    # Messages come as they are: text as str, binary as bytes.
    encoding = None

    async def on_receive(self, websocket: WebSocket, data: str | bytes) -> None:
        if isinstance(data, str):
            await websocket.send_text(data)
        else:
            await websocket.send_bytes(data)


app = Starlette(routes=[WebSocketRoute("/", Echo)])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", ws_per_message_deflate=False)
