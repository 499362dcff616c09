"""Tests of the messages, with the golden messages and with values that Hypothesis generates."""

import json
from typing import Any

import pytest
from golden import golden
from hypothesis import given
from hypothesis import strategies as st

from python_fastapi import protocol
from python_fastapi.end import refusal
from python_fastapi.protocol import CoveredFrames, Failure, InvalidResponseError, Recognition

RESPONSE = {
    "rms": 1.5, "zero_crossings": 7, "checksum": 9, "samples": 1280, "transcript": "now", "audio_bytes": 640,
}  # fmt: skip


def with_ids(entries: list[Any]) -> list[Any]:
    return [pytest.param(entry, id=entry["name"]) for entry in entries]


def message(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Returns a golden message as the ASGI message that the server makes of it; `None` if the entry is raw frames."""
    if "text" in entry:
        return {"type": "websocket.receive", "text": entry["text"]}
    if "binary" in entry:
        return {"type": "websocket.receive", "bytes": bytes.fromhex(entry["binary"])}
    return {"type": "websocket.receive", "bytes": bytes(entry["zeros"])} if "zeros" in entry else None


@pytest.mark.parametrize("entry", with_ids([entry for entry in golden("client") if message(entry)]))
def test_a_client_message_means_what_the_contract_says(entry: dict[str, Any]) -> None:
    sent = message(entry)
    assert sent is not None
    end = refusal(sent, started=entry["state"] == "started")
    if entry["means"] == "close":
        assert end is not None
        assert end.code == entry["code"]
        assert end.refused
        assert end.text == entry.get("reason", end.text)
    else:
        assert end is None


@pytest.mark.parametrize("entry", with_ids(golden("inference")))
def test_a_response_of_the_inference_means_what_the_contract_says(entry: dict[str, Any]) -> None:
    failure = protocol.failure_of_status(entry["status"])
    if failure is None:
        try:
            Recognition.parse(entry["body"].encode(), entry["frames"], entry["cpu_passes"])
        except InvalidResponseError as error:
            failure = Failure("parse_error", str(error), entry["status"])
    if entry["means"] == "partial":
        assert failure is None
        return
    assert failure is not None
    expected = (entry["stage"], entry["kind"], entry["inference_status"], entry["retryable"])
    assert (failure.stage, failure.kind, failure.status, failure.retryable) == expected


@pytest.mark.parametrize("entry", with_ids(golden("partial")))
def test_a_partial_is_the_golden_one_byte_for_byte(entry: dict[str, Any]) -> None:
    input_ = entry["of"]
    recognition = Recognition.parse(input_["body"].encode(), input_["frames"], input_["cpu_passes"])
    echo = input_["cpu_passes"], input_["model_delay_ms"], input_["flush_lateness_ms"]
    assert protocol.partial(input_["oldest_frame_seq"], input_["frames"], recognition, *echo) == entry["text"]


@pytest.mark.parametrize("entry", with_ids(golden("error")))
def test_an_error_is_the_golden_one_byte_for_byte(entry: dict[str, Any]) -> None:
    input_ = entry["of"]
    text = protocol.error(
        Failure(input_["kind"], input_["message"], input_["inference_status"]),
        CoveredFrames(input_["oldest_frame_seq"], input_["frames"], input_["oldest_age_ms"], input_["newest_age_ms"]),
        flush_lateness_ms=input_["flush_lateness_ms"],
        inference_elapsed_ms=input_["inference_elapsed_ms"],
        waiting_frames=input_["gateway_buffer_frames"],
    )
    assert text == entry["text"]


@given(st.text())
def test_any_other_text_is_no_start(text: str) -> None:
    assert not protocol.is_start(text)


@given(st.binary())
def test_any_other_response_raises_that_it_is_invalid(body: bytes) -> None:
    with pytest.raises(InvalidResponseError):
        Recognition.parse(body, 1, 4)


@given(
    st.sampled_from(sorted(RESPONSE)), st.one_of(st.none(), st.booleans(), st.text(), st.floats(), st.lists(st.none()))
)
def test_a_value_of_another_type_makes_a_response_invalid(key: str, value: Any) -> None:
    allowed = str if key == "transcript" else float if key == "rms" else ()
    if allowed and isinstance(value, allowed):
        return
    with pytest.raises(InvalidResponseError):
        Recognition.parse(json.dumps(RESPONSE | {key: value}).encode(), 1, 4)


@given(st.text(min_size=1))
def test_a_transcript_comes_through_unchanged(transcript: str) -> None:
    body = json.dumps(RESPONSE | {"transcript": transcript}).encode()
    text = protocol.partial(1, 1, Recognition.parse(body, 1, 4), 4, 75, 0.0)
    assert json.loads(text)["transcript"] == transcript


def test_a_deep_text_is_refused_and_not_followed() -> None:
    assert not protocol.is_start("[" * 60_000)


def test_time_that_ran_backwards_is_no_time() -> None:
    assert protocol.milliseconds(-0.001) == 0.0
    assert protocol.milliseconds(0.001287334) == 1.287334
