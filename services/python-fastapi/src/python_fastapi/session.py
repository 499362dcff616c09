"""One session: its audio, its flush ticks, its one request in flight, and its end.

While a session runs, no task waits for its socket. A task switch, two switches between threads and a wake-up for each
of 50 frames per second cost several times as much as processing the frames. So the timer wheel (`rounds`) visits each
session: the session calls `receive()` for as many messages as have probably arrived, and takes them in the next round.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Coroutine
from math import ceil
from typing import Any, Final

from python_fastapi import protocol
from python_fastapi.asgi import PendingMessage, Receive, Send
from python_fastapi.backlog import Backlog, Batch, covered
from python_fastapi.end import EOF, SHUTDOWN, SLOW_CONSUMER, End, refusal
from python_fastapi.gateway import CLOSE_SECONDS, DRAIN_SECONDS, Gateway
from python_fastapi.protocol import FRAME_BYTES, FRAME_WIRE_BYTES, Failure, Recognition
from python_fastapi.rounds import ROUND_SECONDS

VISIT_SECONDS: Final = 0.34
"""The longest time between two visits."""
OUTBOX_BYTES: Final = 64 * 1024
STALL_SECONDS: Final = 10.0
FRAMES_PER_SECOND: Final = 50.0
"""The rate that is assumed for a client until it was measured."""
EXTRA_REQUESTS: Final = 2
"""How many further messages are requested when all expected ones have arrived; doubled with each turn."""
MAX_REQUESTED: Final = 64
"""The largest number of outstanding `receive()` calls of a session."""
MAX_TURNS: Final = 4
"""The most turns (request, then take) in one visit, so that a client that floods doesn't delay others."""


class Session:
    """One session, from the accepted upgrade to its Close frame."""

    __slots__ = (
        "_backlog",
        "_books",
        "_counted_since",
        "_drain_deadline",
        "_due",
        "_ended",
        "_gateway",
        "_in_flight",
        "_interval",
        "_outbox",
        "_progress_at",
        "_rate",
        "_receive",
        "_request_task",
        "_requested",
        "_rounds",
        "_send",
        "_taken",
        "_tasks",
        "_turns",
    )  # fmt: skip

    def __init__(self, gateway: Gateway, receive: Receive, send: Send) -> None:
        self._gateway = gateway
        self._books = gateway.books
        self._rounds = gateway.rounds
        self._receive = receive
        self._send = send
        self._interval = gateway.config.flush_interval_ms / 1e3
        self._requested: list[PendingMessage] = []
        self._rate = FRAMES_PER_SECOND
        """The client's messages per second: a moving average that each tick updates."""
        self._counted_since = 0.0
        """When the session started or a visit at a tick last ended; `_taken` counts the messages since then."""
        self._taken = 0
        self._turns = 0
        self._backlog = Backlog()
        self._due = 0.0
        self._in_flight: Batch | None = None
        """The batch in flight; there is at most one."""
        self._request_task: asyncio.Task[None] | None = None
        self._outbox = 0
        """Bytes of the messages whose `send` hasn't returned yet."""
        self._progress_at = 0.0
        self._drain_deadline: float | None = None
        """When the session must have ended, as a time of `time.monotonic`; `None` until the gateway stops."""
        self._ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serves the session until it has ended and its Close frame was sent."""
        with self._books.lock:
            self._books.accepted += 1
            self._books.open += 1
        end = End("error")
        try:
            end = await self._open() or await self._serve()
        finally:
            self._drop_held_frames(end)
            await self._close(end)
            with self._books.lock:
                self._books.open -= 1
                self._books.closed[end.reason] += 1

    async def _open(self) -> End | None:
        """Waits for the start message. Returns why the session ends before it has started, else `None`."""
        task = asyncio.current_task()
        if task is None or not self._gateway.accepting:
            return SHUTDOWN
        self._gateway.opening.add(task)
        try:
            return refusal(await self._receive(), started=False)
        except asyncio.CancelledError:
            task.uncancel()
            return SHUTDOWN
        except RuntimeError:
            return EOF
        finally:
            self._gateway.opening.discard(task)

    async def _serve(self) -> End:
        """Hands the started session to the timer wheel and waits until the session ends."""
        now = time.monotonic()
        with self._books.lock:
            self._books.received += 1
            self._books.consumed += 1
        jitter_ms = self._gateway.config.flush_phase_jitter_ms
        self._due = now + random.uniform(0, jitter_ms / 1e3) + self._interval  # noqa: S311
        self._counted_since = now
        self._gateway.sessions.add(self)
        self._after_visit()
        return await self._ended

    # A visit: `_request_messages` in one round, `_take_ready` or `_take_until_empty` in the next.

    def _request_messages(self) -> None:
        if self._drain_deadline is not None or self._ended.done():
            return
        now = time.monotonic()
        expected = self._rate * (now - self._counted_since) - self._taken
        # At a tick, one call more than messages are expected, so that the newest frame is in the batch, and further
        # calls if all of them find one. Between ticks fewer calls: a call that waits for a message makes each packet
        # wake the server's thread.
        is_tick = now + ROUND_SECONDS >= self._due
        self._request(ceil(expected) + 1 if is_tick else max(1, int(expected)))
        self._rounds.soon(self._take_until_empty if is_tick else self._take_ready)

    def _request(self, count: int) -> None:
        receive, requested = self._receive, self._requested
        for _ in range(min(count, MAX_REQUESTED) - len(requested)):
            requested.append(receive())

    def _take_ready(self) -> None:
        if self._drain_deadline is None and not self._ended.done():
            self._read(time.monotonic())
            self._after_visit()

    def _take_until_empty(self) -> None:
        if self._drain_deadline is not None or self._ended.done():
            return
        now = time.monotonic()
        is_empty = self._read(now)
        self._turns += 1
        if not is_empty and self._turns < MAX_TURNS and not self._ended.done():
            self._request(EXTRA_REQUESTS << self._turns)
            self._rounds.soon(self._take_until_empty)
            return
        self._turns = 0
        self._rate += (self._taken / (now - self._counted_since) - self._rate) / 4
        self._counted_since = now
        self._taken = 0
        if not self._ended.done() and now >= self._due:
            self._tick(now)
        self._after_visit()

    def _after_visit(self) -> None:
        now = time.monotonic()
        if self._outbox and (self._outbox > OUTBOX_BYTES or now - self._progress_at > STALL_SECONDS):
            self._end(SLOW_CONSUMER)
        # A tick is a visit, too; the visits between two ticks are evenly spaced.
        rest = self._due - ROUND_SECONDS - now
        self._rounds.at(now + rest / max(1, ceil(rest / VISIT_SECONDS)), self._request_messages)

    def _read(self, now: float) -> bool:
        """Takes the messages that have arrived. Returns whether a call still waits, so that no more can be there."""
        requested = self._requested
        count = 0
        for pending in requested:
            if not pending.done():
                break
            count += 1
        is_empty = count < len(requested)
        self._taken += count
        if count:
            try:
                frames = [pending.result()["bytes"] for pending in requested[:count]]
            except (KeyError, RuntimeError):
                frames = []
            if set(map(len, frames)) == {FRAME_BYTES}:
                self._admit(frames, now)
            else:
                self._read_one_by_one(requested[:count], now)
            del requested[:count]
        return is_empty

    def _read_one_by_one(self, messages: list[PendingMessage], now: float) -> None:
        """The general path: up to the first message that is not a frame."""
        frames: list[bytes] = []
        end: End | None = None
        for pending in messages:
            try:
                message = pending.result()
            except RuntimeError:
                end = EOF
            else:
                end = refusal(message, started=True)
            if end is not None:
                break
            frames.append(message["bytes"])
        if frames:
            self._admit(frames, now)
        if end is not None:
            self._end(end)

    def _admit(self, frames: list[bytes], now: float) -> None:
        self._backlog.add(frames, now)
        excess = self._backlog.drop_oldest(self._gateway.config.max_buffered_frames)
        books, count = self._books, len(frames)
        with books.lock:
            books.received += count
            books.bytes_received += count * FRAME_WIRE_BYTES
            books.frames_waiting += count - excess
            if excess:
                books.dropped["overflow"] += excess

    def _tick(self, now: float) -> None:
        lateness = now - self._due
        missed = int(lateness / self._interval)
        self._due += (missed + 1) * self._interval
        outcome = "skipped" if self._in_flight else "flushed" if self._backlog.frames else "empty"
        with self._books.lock:
            self._books.tick(outcome, lateness)
        if not self._in_flight:
            self._flush(now, lateness)

    def _flush(self, now: float, lateness: float) -> None:
        """Reports dropped frames and sends the waiting audio as one batch. No request may be in flight."""
        lateness_ms = protocol.milliseconds(lateness)
        lost = self._backlog.take_lost(now)
        if lost is not None:
            limit, waiting = self._gateway.config.max_buffered_frames, len(self._backlog.frames)
            failure = Failure("overflow", f"more than {limit} frames waited: the oldest {lost.frames} were dropped")
            self._start_task(
                self._send_text(
                    protocol.error(
                        failure, lost, flush_lateness_ms=lateness_ms, inference_elapsed_ms=None, waiting_frames=waiting
                    )
                )
            )
        if not self._backlog.frames:
            return
        batch = self._in_flight = self._backlog.take()
        books = self._books
        with books.lock:
            books.requests += 1
            books.in_flight += 1
            books.in_flight_per_connection_max = 1
            books.frames_waiting -= batch.frames
            books.frames_in_flight += batch.frames
        self._request_task = self._start_task(self._recognise(batch, now, lateness_ms))

    async def _recognise(self, batch: Batch, started_at: float, lateness_ms: float) -> None:
        outcome = await self._gateway.inference.recognise(batch.audio, batch.frames)
        if self._in_flight is not batch:
            # The session has ended and its frames are counted; a timeout at the same moment hid the cancellation.
            return
        now = time.monotonic()
        self._in_flight = None
        if isinstance(outcome, Recognition):
            config = self._gateway.config
            text = protocol.partial(
                batch.oldest, batch.frames, outcome, config.cpu_passes, config.model_delay_ms, lateness_ms
            )
        else:
            text = protocol.error(
                outcome,
                covered(batch.oldest, batch.frames, batch.oldest_at, batch.newest_at, now),
                flush_lateness_ms=lateness_ms,
                inference_elapsed_ms=protocol.milliseconds(now - started_at),
                waiting_frames=len(self._backlog.frames),
            )
        books = self._books
        with books.lock:
            books.in_flight -= 1
            books.frames_in_flight -= batch.frames
            if isinstance(outcome, Recognition):
                books.answered += 1
                books.delivered += batch.frames
            else:
                books.failed[outcome.kind] += 1
                books.dropped[outcome.kind] += batch.frames
        await self._send_text(text)

    async def _send_text(self, text: str) -> None:
        """Sends a message. Concurrent calls send in the order in which they began."""
        size = len(text.encode()) + 4
        if not self._outbox:
            self._progress_at = time.monotonic()
        self._outbox += size
        try:
            await self._send({"type": "websocket.send", "text": text})
        except (RuntimeError, OSError):
            # The client is gone; the next visit detects it.
            return
        finally:
            self._outbox -= size
        self._progress_at = time.monotonic()
        with self._books.lock:
            self._books.sent += 1
            self._books.bytes_sent += size

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The end.

    def drain(self) -> None:
        """Ends the session when the gateway stops. Frames that have arrived by now are still sent to the inference."""
        self._drain_deadline = time.monotonic() + DRAIN_SECONDS
        self._requested += [self._receive() for _ in range(MAX_REQUESTED - len(self._requested))]
        self._rounds.soon(self._begin_drain)

    def _begin_drain(self) -> None:
        self._read(time.monotonic())
        self._continue_drain()

    def _continue_drain(self) -> None:
        if self._ended.done() or self._drain_deadline is None:
            return
        now = time.monotonic()
        if now >= self._drain_deadline:
            self._end(SHUTDOWN)
            return
        if not self._in_flight:
            self._flush(now, 0.0)
        if not self._in_flight and not self._outbox and not self._tasks:
            self._end(SHUTDOWN)
            return
        self._rounds.soon(self._continue_drain)

    def _end(self, end: End) -> None:
        if not self._ended.done():
            self._ended.set_result(end)

    def _drop_held_frames(self, end: End) -> None:
        """Counts what the session still holds as dropped, and cancels its `receive()` calls and its request."""
        self._gateway.sessions.discard(self)
        for pending in self._requested:
            pending.cancel()
        self._requested.clear()
        waiting, batch = len(self._backlog.frames), self._in_flight
        self._backlog.frames.clear()
        self._in_flight = None
        books = self._books
        with books.lock:
            books.frames_waiting -= waiting
            lost = waiting
            if batch:
                books.frames_in_flight -= batch.frames
                books.in_flight -= 1
                books.abandoned += 1
                lost += batch.frames
            if lost:
                books.dropped["closed"] += lost
            if end.refused:
                books.received += 1
                books.dropped["protocol"] += 1
        if batch and self._request_task:
            self._request_task.cancel()

    async def _close(self, end: End) -> None:
        """Sends the Close frame behind the waiting messages, within `CLOSE_SECONDS`, and cancels the other tasks."""
        # An error changes nothing: the session is over.
        with contextlib.suppress(RuntimeError, OSError):
            if end.code is not None:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._send({"type": "websocket.close", "code": end.code, "reason": end.text})
        for task in tuple(self._tasks):
            task.cancel()
