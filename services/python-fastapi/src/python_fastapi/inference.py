"""The inference behind the gateway: one POST per batch, over HTTP/2 without TLS."""

import time
from datetime import timedelta
from itertools import cycle

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError, RequestTimeoutError

from python_fastapi.config import Config
from python_fastapi.protocol import Failure, InvalidResponseError, Recognition, failure_of_status

# Requests have 32 KB and responses 200 bytes: the receive windows only need room for many small responses.
_WINDOW_BYTES = 1 << 20
_CONNECT_TIMEOUT = timedelta(seconds=1)


class Inference:
    """The HTTP/2 connections to the inference, one per client. Batches are sent on them in turn."""

    def __init__(self, config: Config) -> None:
        self._url = f"{config.inference_url}/infer"
        self._passes = str(config.cpu_passes)
        self._cpu_passes = config.cpu_passes
        self._timeout_ms = config.inference_timeout_ms
        self._clients = [_client(config) for _ in range(config.inference_http_clients)]
        self._next_client = cycle(self._clients).__next__

    async def recognise(self, audio: bytes, frames: int) -> Recognition | Failure:
        """Sends a batch and returns its outcome. It doesn't raise for errors of the inference or of the connection."""
        started_at = time.monotonic()
        try:
            request = self._next_client().post(self._url).header("x-cpu-passes", self._passes).body_bytes(audio).build()
            response = await request.send()
            failure = failure_of_status(response.status)
            if failure is not None:
                return failure
            body = await response.bytes()
        except RequestTimeoutError:
            return Failure("timeout", f"no answer within {self._timeout_ms} ms")
        except PyreqwestError as error:
            return _transport_failure(error, time.monotonic() - started_at, self._timeout_ms)
        try:
            return Recognition.parse(bytes(body), frames, self._cpu_passes)
        except InvalidResponseError as error:
            return Failure("parse_error", str(error), response.status)

    async def close(self) -> None:
        """Closes the connections of all clients to the inference."""
        for client in self._clients:
            await client.close()


def _client(config: Config) -> Client:
    return (
        ClientBuilder()
        .http2(True)
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(_WINDOW_BYTES)
        .http2_initial_connection_window_size(_WINDOW_BYTES)
        .tcp_nodelay(True)
        .no_proxy()
        # The connection has no TLS. With this setting the client doesn't load the system's certificates, which may not
        # exist.
        .danger_accept_invalid_certs(True)
        .follow_redirects(False)
        .connect_timeout(min(_CONNECT_TIMEOUT, timedelta(milliseconds=config.inference_timeout_ms)))
        .timeout(timedelta(milliseconds=config.inference_timeout_ms))
        .pool_idle_timeout(None)
        .build()
    )


def _transport_failure(error: PyreqwestError, elapsed: float, timeout_ms: int) -> Failure:
    text = str(error)
    if elapsed * 1e3 >= timeout_ms:
        return Failure("timeout", f"no answer within {timeout_ms} ms")
    return Failure("connection_reset", f"the request failed: {text}")
