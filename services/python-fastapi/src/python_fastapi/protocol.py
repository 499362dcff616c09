"""The messages: the client's start, the inference's responses, partials and errors. Pure functions without I/O.

Parsing is strict: a number with a decimal point is not an integer, and an object with a duplicate key is invalid.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

FRAME_BYTES: Final = 640
FRAME_SAMPLES: Final = 320
MAX_MESSAGE_BYTES: Final = 64 * 1024
# Size of an audio frame on the wire: its payload, 4 bytes of header and 4 of mask.
FRAME_WIRE_BYTES: Final = FRAME_BYTES + 8

FIRST_MUST_BE_START: Final = "first message must be start"
EXPECTED_AUDIO: Final = "expected binary PCM frames after start"
EXPECTED_640: Final = "expected 640 byte PCM frame"
TOO_BIG: Final = "message too big"

STAGES: Final = {"overflow": "websocket_receive", "parse_error": "inference_response_parse"}
FAILURE_KINDS: Final = ("overflow", "timeout", "connection_reset", "http_429", "http_5xx", "parse_error")
_RETRYABLE: Final = frozenset({"timeout", "connection_reset", "http_429"})
_KEYS: Final = {"rms", "zero_crossings", "checksum", "samples", "transcript", "audio_bytes"}


class InvalidResponseError(Exception):
    """A response of the inference that breaks the contract."""


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(object_pairs_hook=_object_without_duplicates, parse_constant=_refuse_constant)


def is_start(text: str) -> bool:
    """Whether `text` is exactly the object `{"type":"start"}`."""
    try:
        return bool(_decode.decode(text) == {"type": "start"})
    except (ValueError, RecursionError):
        return False


@dataclass(frozen=True, slots=True)
class Recognition:
    """The inference's response to one batch: the six values that a partial repeats."""

    rms: float
    zero_crossings: int
    checksum: int
    samples: int
    transcript: str
    audio_bytes: int

    @classmethod
    def parse(cls, body: bytes, frames: int, cpu_passes: int) -> "Recognition":
        """Parses the response to a batch of `frames` frames. Raises `InvalidResponseError` for another body."""
        try:
            value = _decode.decode(body.decode())
        except (ValueError, RecursionError) as error:
            raise InvalidResponseError(f"the inference's answer is no JSON: {error}") from error
        if not isinstance(value, dict) or value.keys() != _KEYS:
            raise InvalidResponseError("the inference's answer has other keys than the six")
        _check(value, frames, cpu_passes)
        return cls(**value)


def _check(value: dict[str, Any], frames: int, cpu_passes: int) -> None:
    rms, transcript = value["rms"], value["transcript"]
    if type(rms) not in (float, int) or not math.isfinite(rms):
        raise InvalidResponseError("the inference's answer has an rms that is not a finite number")
    for key, bits in (("zero_crossings", 64), ("checksum", 32), ("samples", 64), ("audio_bytes", 64)):
        number = value[key]
        if type(number) is not int or not 0 <= number < 1 << bits:
            raise InvalidResponseError(f"the inference's answer has a {key} that is not an integer of {bits} bits")
    if type(transcript) is not str or not transcript:
        raise InvalidResponseError("the inference's answer has no transcript")
    for key, expected in (("samples", cpu_passes * FRAME_SAMPLES * frames), ("audio_bytes", FRAME_BYTES * frames)):
        if value[key] != expected:
            raise InvalidResponseError(f"the inference's answer has {value[key]} {key} instead of {expected}")


def milliseconds(seconds: float) -> float:
    """Converts seconds to milliseconds, rounded to the nanosecond. A negative time becomes 0."""
    return round(max(0.0, seconds) * 1e3, 6)


def partial(
    oldest: int, frames: int, recognition: Recognition, cpu_passes: int, model_delay_ms: int, flush_lateness_ms: float
) -> str:
    """Returns the text of the partial that covers `frames` frames from number `oldest` on."""
    return (
        f'{{"type":"partial","oldest_frame_seq":{oldest},"newest_frame_seq":{oldest + frames - 1},"frames":{frames},'
        f'"rms":{recognition.rms!r},"zero_crossings":{recognition.zero_crossings},"checksum":{recognition.checksum},'
        f'"samples":{recognition.samples},"transcript":{json.dumps(recognition.transcript, ensure_ascii=False)},'
        f'"audio_bytes":{recognition.audio_bytes},"cpu_passes":{cpu_passes},"model_delay_ms":{model_delay_ms},'
        f'"flush_lateness_ms":{flush_lateness_ms!r},"inflight_model_jobs":0}}'
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why frames got no partial. `status` is the HTTP status of the inference, `None` without one."""

    kind: str
    message: str
    status: int | None = None

    @property
    def stage(self) -> str:
        """The `stage` of the error message: where the failure occurred."""
        return STAGES.get(self.kind, "inference_request")

    @property
    def retryable(self) -> bool:
        """Whether the same request might succeed later."""
        return self.kind in _RETRYABLE or (self.kind == "http_5xx" and 500 <= (self.status or 0) < 600)


@dataclass(frozen=True, slots=True)
class CoveredFrames:
    """The frames that an error covers: their numbers, and how long ago they were read, in milliseconds."""

    oldest: int
    frames: int
    oldest_age_ms: float
    newest_age_ms: float


def error(
    failure: Failure,
    covered: CoveredFrames,
    *,
    flush_lateness_ms: float,
    inference_elapsed_ms: float | None,
    waiting_frames: int,
) -> str:
    """Returns the text of the error that covers these frames."""
    return json.dumps(
        {
            "type": "error",
            "stage": failure.stage,
            "kind": failure.kind,
            "message": failure.message,
            "oldest_frame_seq": covered.oldest,
            "newest_frame_seq": covered.oldest + covered.frames - 1,
            "frames": covered.frames,
            "audio_bytes": covered.frames * FRAME_BYTES,
            "oldest_age_ms": covered.oldest_age_ms,
            "newest_age_ms": covered.newest_age_ms,
            "flush_lateness_ms": flush_lateness_ms,
            "inference_elapsed_ms": inference_elapsed_ms,
            "inflight_gateway_batches": 0 if failure.kind == "overflow" else 1,
            "gateway_buffer_frames": waiting_frames,
            "inference_status": failure.status,
            "retryable": failure.retryable,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def failure_of_status(status: int) -> Failure | None:
    """Returns the failure that a status of the inference means; `None` for 2xx."""
    if 200 <= status < 300:
        return None
    kind = "http_429" if status == 429 else "http_5xx"
    return Failure(kind, f"the inference answered {status}", status)
