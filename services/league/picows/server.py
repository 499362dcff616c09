"""Sends back what it gets. Usage: server.py PORT"""

import sys

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server


class Echo(WSListener):
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        match frame.msg_type:
            case WSMsgType.PING:
                transport.send_pong(frame.get_payload_as_bytes())
            case WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code(), frame.get_close_message())
                transport.disconnect()
            case kind:
                transport.send(kind, frame.get_payload_as_bytes(), frame.fin)


def listener(_: WSUpgradeRequest) -> WSListener:
    return Echo()


async def main() -> None:
    server = await ws_create_server(listener, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


uvloop.run(main())
