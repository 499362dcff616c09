"""Each user sends a message, waits for the answer, and sends the next one. Parameters come from the environment."""

import os
import time

from locust import User, constant, task
from locust.exception import StopUser
from websocket import WebSocket, create_connection

TEXT = os.environ["TEXT"]
MESSAGES = int(os.environ["MESSAGES"])


class EchoUser(User):
    wait_time = constant(float(os.environ["PAUSE_SECONDS"]))
    unfinished = int(os.environ["CONNECTIONS"])
    socket: WebSocket
    sent = 0

    def on_start(self) -> None:
        self.socket = create_connection(f"ws://127.0.0.1:{os.environ['SERVER_PORT']}/")

    def on_stop(self) -> None:
        self.socket.close()
        EchoUser.unfinished -= 1
        if not EchoUser.unfinished:
            self.environment.runner.quit()

    @task
    def echo(self) -> None:
        begin = time.perf_counter()
        self.socket.send(TEXT)
        reply = self.socket.recv()
        self.environment.events.request.fire(
            request_type="WS",
            name="echo",
            response_time=(time.perf_counter() - begin) * 1000,
            response_length=len(reply),
            exception=None if reply == TEXT else ValueError("another text came back"),
            context={},
        )
        self.sent += 1
        if self.sent == MESSAGES:
            raise StopUser
