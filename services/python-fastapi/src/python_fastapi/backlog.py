"""The audio that waits in a session. It leaves in batches, or is dropped when it exceeds the limit."""

from dataclasses import dataclass

from python_fastapi import protocol
from python_fastapi.protocol import CoveredFrames


@dataclass(frozen=True, slots=True)
class Batch:
    """The audio of one request. `oldest` is a frame number; the times are those of `time.monotonic`."""

    audio: bytes
    oldest: int
    frames: int
    oldest_at: float
    newest_at: float


def covered(oldest: int, frames: int, oldest_at: float, newest_at: float, now: float) -> CoveredFrames:
    """Describes the frames that a message covers, with their ages at `now`."""
    return CoveredFrames(oldest, frames, protocol.milliseconds(now - oldest_at), protocol.milliseconds(now - newest_at))


class Backlog:
    """The audio that waits, in order of arrival, with the numbers of its frames and the times of their reads."""

    __slots__ = ("_arrivals", "_lost", "_lost_newest_at", "_lost_oldest_at", "_oldest", "frames")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self._oldest = 1
        """Number of the oldest frame that no message covers yet; the first frame is number 1."""
        self._arrivals: list[tuple[int, float]] = []
        """For each visit: how many frames of `frames` it read, and when."""
        self._lost = 0
        self._lost_oldest_at = self._lost_newest_at = 0.0

    def add(self, frames: list[bytes], now: float) -> None:
        """Appends frames that were read at `now`."""
        self.frames += frames
        self._arrivals.append((len(frames), now))

    def drop_oldest(self, limit: int) -> int:
        """Drops the oldest frames beyond `limit` and returns their number. `take_lost` reports them later."""
        excess = len(self.frames) - limit
        if excess <= 0:
            return 0
        del self.frames[:excess]
        rest = excess
        while rest:
            count, at = self._arrivals[0]
            if not self._lost:
                self._lost_oldest_at = at
            self._lost_newest_at = at
            dropped = min(rest, count)
            self._lost += dropped
            rest -= dropped
            if dropped == count:
                del self._arrivals[0]
            else:
                self._arrivals[0] = (count - dropped, at)
        return excess

    def take_lost(self, now: float) -> CoveredFrames | None:
        """Returns the frames that were dropped since the last call; `None` if there were none."""
        if not self._lost:
            return None
        lost = covered(self._oldest, self._lost, self._lost_oldest_at, self._lost_newest_at, now)
        self._oldest += self._lost
        self._lost = 0
        return lost

    def take(self) -> Batch:
        """Removes all frames and returns them as one batch. At least one frame must be there."""
        frames = len(self.frames)
        batch = Batch(b"".join(self.frames), self._oldest, frames, self._arrivals[0][1], self._arrivals[-1][1])
        self._oldest += frames
        self.frames.clear()
        self._arrivals.clear()
        return batch
