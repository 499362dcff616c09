"""Sends back what it gets. Usage: server.py PORT"""

import asyncio
import sys

from websockets.asyncio.server import ServerConnection, serve


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def main() -> None:
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), compression=None) as server:
        await server.serve_forever()


asyncio.run(main())
