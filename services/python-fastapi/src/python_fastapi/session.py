"""One session: its audio, its flush ticks, its one request in flight, and its end.

While it runs no task waits for its socket. A task switch, two hops between threads and a wake-up for each of 50 frames
per second cost several times what the frames themselves do. So a session is visited by the clock (`rounds`): it asks the
server for as many messages as have probably come, and takes them in the next round.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from python_fastapi import protocol
from python_fastapi.config import Config
from python_fastapi.inference import Inference
from python_fastapi.metrics import Books
from python_fastapi.protocol import FRAME_BYTES, FRAME_WIRE_BYTES, MAX_MESSAGE_BYTES, Covered, Failure, Recognition
from python_fastapi.rounds import ROUND_SECONDS, Rounds

VISIT_SECONDS: Final = 0.25
"""The longest time between two visits."""
FAREWELL_SECONDS: Final = 1.0
"""How long a close frame may take to leave."""
DRAIN_SECONDS: Final = 2.9
"""How long a session may take to end by itself when the gateway stops, without the farewell."""
OUTBOX_BYTES: Final = 64 * 1024
STALL_SECONDS: Final = 10.0
ASK_LIMIT: Final = 64
"""Messages asked for at once."""
TURNS_LIMIT: Final = 4
"""Turns of asking and taking in one visit: a client that floods doesn't keep others waiting."""

type Message = dict[str, Any]
type Send = Callable[[Message], Awaitable[None]]


class Reception(Protocol):
    """What Granian's `receive()` returns: a message to come. The server works on it without being awaited."""

    def done(self) -> bool: ...
    def result(self) -> Message: ...
    def cancel(self) -> bool: ...
    def __await__(self) -> Any: ...


type Receive = Callable[[], Reception]


@dataclass(frozen=True, slots=True)
class End:
    """Why a session ends, and the close frame that says so; no code where there is nobody to tell."""

    reason: str
    code: int | None = None
    text: str = ""
    refused: bool = False
    """Whether a whole message was refused."""


EOF: Final = End("eof")
SHUTDOWN: Final = End("shutdown", 1001, "the gateway stops")
SLOW_CONSUMER: Final = End("slow_consumer", 1013, "the client does not read")
# Granian reports a broken frame like a close frame without a code. What answers both is this: after a close frame it has
# answered already, and sends no second one.
BROKEN: Final = End("client", 1002, "protocol error")


def refusal(message: Message, *, started: bool) -> End | None:
    """What ends a session because of this message; `None` if it is the start, or a frame after it."""
    if message["type"] == "websocket.disconnect":
        code = message.get("code", 1005)
        return BROKEN if code == 1005 else End("client", code)
    text, data = message.get("text"), message.get("bytes")
    size = len(data) if data is not None else len((text or "").encode())
    if size > MAX_MESSAGE_BYTES:
        return End("too_big", 1009, protocol.TOO_BIG, refused=True)
    if not started:
        if text is not None and protocol.is_start(text):
            return None
        return End("protocol", 1002, protocol.FIRST_MUST_BE_START, refused=True)
    if data is None:
        return End("protocol", 1002, protocol.EXPECTED_AUDIO, refused=True)
    return None if size == FRAME_BYTES else End("protocol", 1003, protocol.EXPECTED_640, refused=True)


class Backlog:
    """The audio that waits, as the frames came, with their numbers and the times at which they were read."""

    __slots__ = ("_lost", "_lost_newest_at", "_lost_oldest_at", "_oldest", "_reads", "frames")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self._oldest = 1
        """Number of the oldest frame that is not covered by a message."""
        self._reads: list[tuple[int, float]] = []
        """How many frames of `frames` each visit read, and when."""
        self._lost = 0
        self._lost_oldest_at = self._lost_newest_at = 0.0

    def add(self, frames: list[bytes], now: float) -> None:
        """Frames read at `now`."""
        self.frames += frames
        self._reads.append((len(frames), now))

    def drop_oldest(self, limit: int) -> int:
        """Drops what is beyond `limit` frames; returns how many. They stay noted until `take_lost`."""
        excess = len(self.frames) - limit
        if excess <= 0:
            return 0
        del self.frames[:excess]
        rest = excess
        while rest:
            count, at = self._reads[0]
            if not self._lost:
                self._lost_oldest_at = at
            self._lost_newest_at = at
            dropped = min(rest, count)
            self._lost += dropped
            rest -= dropped
            if dropped == count:
                del self._reads[0]
            else:
                self._reads[0] = (count - dropped, at)
        return excess

    def take_lost(self, now: float) -> Covered | None:
        """The frames dropped since the last call."""
        if not self._lost:
            return None
        covered = _covered(self._oldest, self._lost, self._lost_oldest_at, self._lost_newest_at, now)
        self._oldest += self._lost
        self._lost = 0
        return covered

    def take(self) -> "Batch":
        """All that waits; there must be something."""
        frames = len(self.frames)
        batch = Batch(b"".join(self.frames), self._oldest, frames, self._reads[0][1], self._reads[-1][1])
        self._oldest += frames
        self.frames.clear()
        self._reads.clear()
        return batch


@dataclass(frozen=True, slots=True)
class Batch:
    """The audio of one request."""

    audio: bytes
    oldest: int
    frames: int
    oldest_at: float
    newest_at: float


def _covered(oldest: int, frames: int, oldest_at: float, newest_at: float, now: float) -> Covered:
    return Covered(oldest, frames, protocol.milliseconds(now - oldest_at), protocol.milliseconds(now - newest_at))


class Gateway:
    """What all sessions share."""

    def __init__(self, config: Config, books: Books, inference: Inference, rounds: Rounds) -> None:
        self.config = config
        self.books = books
        self.inference = inference
        self.rounds = rounds
        self.sessions: set[Session] = set()
        self.opening: set[asyncio.Task[Any]] = set()
        self.accepting = True

    async def drain(self) -> None:
        """Takes no more connections, and returns when all sessions have ended, or should have."""
        self.accepting = False
        deadline = time.monotonic() + DRAIN_SECONDS + FAREWELL_SECONDS
        for task in tuple(self.opening):
            task.cancel()
        for session in tuple(self.sessions):
            session.drain()
        while self.books.open and time.monotonic() < deadline:
            await asyncio.sleep(ROUND_SECONDS)


class Session:
    """One session, from its upgrade to its last byte."""

    __slots__ = (
        "_asked", "_backlog", "_books", "_draining", "_due", "_ended", "_flight", "_flying", "_gateway", "_interval", "_outbox",
        "_progress_at", "_receive", "_rounds", "_send", "_tasks", "_turns", "_want",
    )  # fmt: skip

    def __init__(self, gateway: Gateway, receive: Receive, send: Send) -> None:
        self._gateway = gateway
        self._books = gateway.books
        self._rounds = gateway.rounds
        self._receive = receive
        self._send = send
        self._interval = gateway.config.flush_interval_ms / 1e3
        self._asked: list[Reception] = []
        self._want = 1
        self._turns = 0
        self._backlog = Backlog()
        self._due = 0.0
        self._flight: Batch | None = None
        """The one batch in flight: there is no place for another."""
        self._flying: asyncio.Task[None] | None = None
        self._outbox = 0
        """Bytes that the client has not taken yet."""
        self._progress_at = 0.0
        self._draining: float | None = None
        """By when the session must have ended, once the gateway stops."""
        self._ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serves the session until it has ended and its client knows."""
        with self._books.lock:
            self._books.accepted += 1
            self._books.open += 1
        end = End("error")
        try:
            end = await self._open() or await self._serve()
        finally:
            self._account(end)
            await self._farewell(end)
            with self._books.lock:
                self._books.open -= 1
                self._books.closed[end.reason] += 1

    async def _open(self) -> End | None:
        """Waits for the start message."""
        task = asyncio.current_task()
        assert task is not None
        if not self._gateway.accepting:
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
        """From the start message on the wheel does everything; this only waits."""
        now = time.monotonic()
        with self._books.lock:
            self._books.received += 1
            self._books.consumed += 1
        jitter_ms = self._gateway.config.flush_phase_jitter_ms
        self._due = now + random.uniform(0, jitter_ms / 1e3) + self._interval  # noqa: S311
        self._gateway.sessions.add(self)
        self._ask()
        return await self._ended

    # A visit: `_ask` in one round, `_take` in the next.

    def _ask(self) -> None:
        if self._draining is None and not self._ended.done():
            receive, asked = self._receive, self._asked
            for _ in range(self._want - len(asked)):
                asked.append(receive())
            self._rounds.soon(self._take)

    def _take(self) -> None:
        if self._draining is not None or self._ended.done():
            return
        now = time.monotonic()
        is_drained = self._read(now)
        if self._ended.done():
            return
        if self._outbox and (self._outbox > OUTBOX_BYTES or now - self._progress_at > STALL_SECONDS):
            return self._end(SLOW_CONSUMER)
        self._turns += 1
        if not is_drained and self._turns < TURNS_LIMIT:
            return self._ask()
        self._turns = 0
        if now >= self._due:
            self._tick(now)
        # The half round is for the wheel, which rounds up.
        self._rounds.at(min(now + VISIT_SECONDS, self._due - ROUND_SECONDS), self._ask)

    def _read(self, now: float) -> bool:
        """Takes the messages that have come. Whether there are no more, as far as one can tell."""
        asked = self._asked
        count = 0
        for reception in asked:
            if not reception.done():
                break
            count += 1
        is_drained = count < len(asked)
        self._want = min(ASK_LIMIT, count + 1 if is_drained else 2 * count + 1)
        if count:
            try:
                frames = [reception.result()["bytes"] for reception in asked[:count]]
            except (KeyError, RuntimeError):
                frames = []
            if set(map(len, frames)) == {FRAME_BYTES}:
                self._admit(frames, now)
            else:
                self._read_one_by_one(asked[:count], now)
            del asked[:count]
        return is_drained

    def _read_one_by_one(self, receptions: list[Reception], now: float) -> None:
        """The general path: up to the first message that is no frame."""
        frames: list[bytes] = []
        end: End | None = None
        for reception in receptions:
            try:
                message = reception.result()
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
            books.waiting += count - excess
            if excess:
                books.dropped["overflow"] += excess

    def _tick(self, now: float) -> None:
        lateness = now - self._due
        missed = int(lateness / self._interval)
        self._due += (missed + 1) * self._interval
        outcome = "skipped" if self._flight else "flushed" if self._backlog.frames else "empty"
        with self._books.lock:
            self._books.tick(outcome, lateness)
        if not self._flight:
            self._flush(now, lateness)

    def _flush(self, now: float, lateness: float) -> None:
        """Reports what was dropped, and sends what waits. There must be no request in flight."""
        lateness_ms = protocol.milliseconds(lateness)
        lost = self._backlog.take_lost(now)
        if lost is not None:
            limit, waiting = self._gateway.config.max_buffered_frames, len(self._backlog.frames)
            failure = Failure("overflow", f"more than {limit} frames waited: the oldest {lost.frames} were dropped")
            self._start(
                self._say(
                    protocol.error(
                        failure, lost, flush_lateness_ms=lateness_ms, inference_elapsed_ms=None, waiting_frames=waiting
                    )
                )
            )
        if not self._backlog.frames:
            return
        batch = self._flight = self._backlog.take()
        books = self._books
        with books.lock:
            books.requests += 1
            books.in_flight += 1
            books.in_flight_per_connection_max = 1
            books.waiting -= batch.frames
            books.flying += batch.frames
        self._flying = self._start(self._fly(batch, now, lateness_ms))

    async def _fly(self, batch: Batch, began: float, lateness_ms: float) -> None:
        outcome = await self._gateway.inference.recognise(batch.audio, batch.frames)
        now = time.monotonic()
        self._flight = None
        if isinstance(outcome, Recognition):
            config = self._gateway.config
            text = protocol.partial(
                batch.oldest, batch.frames, outcome, config.cpu_passes, config.model_delay_ms, lateness_ms
            )
        else:
            text = protocol.error(
                outcome,
                _covered(batch.oldest, batch.frames, batch.oldest_at, batch.newest_at, now),
                flush_lateness_ms=lateness_ms,
                inference_elapsed_ms=protocol.milliseconds(now - began),
                waiting_frames=len(self._backlog.frames),
            )
        books = self._books
        with books.lock:
            books.in_flight -= 1
            books.flying -= batch.frames
            if isinstance(outcome, Recognition):
                books.answered += 1
                books.delivered += batch.frames
            else:
                books.failed[outcome.kind] += 1
                books.dropped[outcome.kind] += batch.frames
        await self._say(text)

    async def _say(self, text: str) -> None:
        """Sends a message. Several of these run in the order in which they began."""
        size = len(text.encode()) + 4
        if not self._outbox:
            self._progress_at = time.monotonic()
        self._outbox += size
        try:
            await self._send({"type": "websocket.send", "text": text})
        except (RuntimeError, OSError):
            # The client is gone; the next visit finds that out.
            return
        finally:
            self._outbox -= size
        self._progress_at = time.monotonic()
        with self._books.lock:
            self._books.sent += 1
            self._books.bytes_sent += size

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The end.

    def drain(self) -> None:
        """The gateway stops: what the client has sent by now still counts, and nothing after it."""
        self._draining = time.monotonic() + DRAIN_SECONDS
        self._asked += [self._receive() for _ in range(ASK_LIMIT - len(self._asked))]
        self._rounds.soon(self._drain_first)

    def _drain_first(self) -> None:
        self._read(time.monotonic())
        self._drain_on()

    def _drain_on(self) -> None:
        if self._ended.done() or self._draining is None:
            return
        now = time.monotonic()
        if now >= self._draining:
            return self._end(SHUTDOWN)
        if not self._flight:
            self._flush(now, 0.0)
        if not self._flight and not self._outbox and not self._tasks:
            return self._end(SHUTDOWN)
        self._rounds.soon(self._drain_on)

    def _end(self, end: End) -> None:
        if not self._ended.done():
            self._ended.set_result(end)

    def _account(self, end: End) -> None:
        """Closes the books of the session, and gives up what it still waits for."""
        self._gateway.sessions.discard(self)
        for reception in self._asked:
            reception.cancel()
        self._asked.clear()
        waiting, flight = len(self._backlog.frames), self._flight
        self._backlog.frames.clear()
        books = self._books
        with books.lock:
            books.waiting -= waiting
            lost = waiting
            if flight:
                books.flying -= flight.frames
                books.in_flight -= 1
                books.abandoned += 1
                lost += flight.frames
            if lost:
                books.dropped["closed"] += lost
            if end.refused:
                books.received += 1
                books.dropped["protocol"] += 1
        if flight and self._flying:
            self._flying.cancel()

    async def _farewell(self, end: End) -> None:
        """Sends the close frame behind what waits, for as long as it may take."""
        try:
            if end.code is not None:
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._send({"type": "websocket.close", "code": end.code, "reason": end.text})
        except (RuntimeError, OSError, TimeoutError):
            # However it goes, nothing of the session is left to do.
            pass
        finally:
            for task in tuple(self._tasks):
                task.cancel()
