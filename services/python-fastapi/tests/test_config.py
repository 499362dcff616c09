"""Tests of the flags and environment variables."""

import pytest

from python_fastapi.config import parse

VERSION = "python-fastapi 0"


def test_a_flag_wins_over_the_variable_and_the_variable_over_the_default() -> None:
    config = parse(["--flush-interval-ms", "200"], {"FLUSH_INTERVAL_MS": "300", "CPU_PASSES": "2"}, VERSION)
    assert (config.flush_interval_ms, config.cpu_passes, config.model_delay_ms) == (200, 2, 75)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"), ("HOST", "localhost"), ("CPU_PASSES", "0"), ("MODEL_DELAY_MS", "-1"),
        ("FLUSH_INTERVAL_MS", "0"), ("FLUSH_PHASE_JITTER_MS", "60001"), ("INFERENCE_TIMEOUT_MS", ""),
        ("INFERENCE_HTTP_CLIENTS", "0"), ("WORKER_THREADS", "many"), ("MAX_BUFFERED_FRAMES", "0"),
        ("MAX_CONNECTIONS", "1.5"), ("INFERENCE_URL", "https://a:1"), ("INFERENCE_URL", "http://a"),
        ("INFERENCE_URL", "http://a:0"), ("INFERENCE_URL", "http://a:1/b"), ("INFERENCE_URL", "http://u@a:1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_flag", [True, False])
def test_a_value_that_makes_no_sense_is_refused_by_its_name(
    name: str, value: str, is_flag: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = f"--{name.lower().replace('_', '-')}"
    with pytest.raises(SystemExit) as end:
        parse([f"{flag}={value}"] if is_flag else [], {} if is_flag else {name: value}, VERSION)
    assert end.value.code == 2
    assert (flag if is_flag else name) in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000", "http://inference-sim:80/", "http://[::1]:9000"])
def test_the_inference_is_a_host_and_a_port(url: str) -> None:
    assert parse([], {"INFERENCE_URL": url}, VERSION).inference_url == url.rstrip("/")


def test_the_version_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["--version"], {}, VERSION)
    assert not end.value.code
    assert capsys.readouterr().out == f"{VERSION}\n"
