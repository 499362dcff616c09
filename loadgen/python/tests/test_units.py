"""Unit tests of the parts that need no service."""

import json
import zlib
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from bench_encoders import ENCODERS
from bench_format.schemas import LoadOpen, Message, TrialId
from wse_py_bench.bench import assign
from wse_py_bench.cli import parse
from wse_py_bench.connection import ready_id
from wse_py_bench.judge import Judge, JudgeError, find_judge
from wse_py_bench.main import service_name
from wse_py_bench.payload import FIRST_SEQUENCE, FORMATS, composer, pong_number
from wse_py_bench.profiles import PROFILES
from wse_py_bench.quota import quota, quota_of
from wse_py_bench.recorder import WindowRecorder

GOLDEN = Path(__file__).resolve().parents[3] / "services/testdata/wse-messages.json"


def message(format_: str, size_bytes: int, sequence: int) -> bytes:
    return composer(Message(format=format_, size_bytes=size_bytes)).compose(sequence)


def decoded(format_: str, size_bytes: int, sequence: int) -> Any:
    data = message(format_, size_bytes, sequence)
    if format_ == "msgpack":
        return msgpack.unpackb(data.removeprefix(b"M:"))
    return json.loads(zlib.decompress(data.removeprefix(b"C:")) if format_ == "compressed" else data)


def test_messages_have_the_published_sizes() -> None:
    sizes = [len(message("json", size, FIRST_SEQUENCE)) for size in (64, 175, 256, 1024, 4096, 16_384, 65_536)]
    assert sizes == [54, 175, 246, 1014, 4086, 16_374, 65_526]


@pytest.mark.parametrize("size", [64, 175, 1024])
def test_all_formats_carry_the_same_fields_and_the_number(size: int) -> None:
    decoded_messages = [decoded(name, size, 123_456_789) for name in FORMATS]
    assert decoded_messages[0]["p"]["seq"] == 123_456_789
    assert decoded_messages == [decoded_messages[0]] * 3


def test_golden_messages_are_distinguished() -> None:
    golden = [one for one in json.loads(GOLDEN.read_text())["messages"] if one["from"] == "server"]
    assert {one["means"] for one in golden} >= {"server_ready", "pong", "server_ping", "event"}
    for one in golden:
        data = bytes.fromhex(one["hex"])
        text = data.decode() if one["opcode"] == "text" else data
        assert ready_id(text) == (one["connection_id"] if one["means"] == "server_ready" else None), one["name"]
        if isinstance(text, str):
            assert pong_number(text) == (one["client_timestamp"] if one["means"] == "pong" else None), one["name"]


def test_each_second_with_values_is_an_interval() -> None:
    recorder = WindowRecorder(1_000_000_000)
    for at_ns in (1_100_000_000, 1_200_000_000, 4_500_000_000):
        recorder.record("response_ns", 5, at_ns)
    assert recorder.finish()["response_ns"].count == 3
    seen = [(one.start_ns, one.histograms["response_ns"].count) for one in recorder.intervals]
    assert seen == [(0, 2), (3_000_000_000, 1)]


def test_the_published_command_lines_are_understood_with_the_token_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WSE_BENCH_TOKEN", "t")
    assert parse("multiprocess", "", ["--workers", "64"]).workers == 64
    brutal = parse("brutal", "", ["--connections", "1000", "--duration", "5"])
    assert (brutal.tiers, brutal.token, brutal.arguments) == (
        (1000,),
        "t",
        ("--connections", "1000", "--duration", "5"),
    )
    listed = parse("brutal", "", ["--tiers", "100,500", "--tiers-heavy", "100", "--tests", "1,3,6"])
    assert (listed.tiers, listed.tiers_heavy) == ((100, 500), (100,))
    assert listed.tests == ("connection-storm", "throughput", "size-matrix")


@pytest.mark.parametrize("profile", PROFILES)
def test_workers_share_connections_without_overlap(profile: str) -> None:
    options = parse(profile, "", [])
    for ladder in PROFILES[profile](options):
        for tier in ladder.tiers:
            shares = assign(options, "r", ladder, TrialId("s", ladder.workload, ladder.variant, tier, 1, 1))
            assert sum(one.connections for one in shares) == tier
            ends = [0, *(one.first_connection + one.connections for one in shares)]
            assert [one.first_connection for one in shares] == ends[:-1]
            rates = [one.load.rate_per_second for one in shares if isinstance(one.load, LoadOpen)]
            whole = ladder.load(tier)
            assert not isinstance(whole, LoadOpen) or sum(rates) == pytest.approx(whole.rate_per_second)


def test_the_encoders_make_the_published_sizes() -> None:
    sizes = [len(encode()) for encode in ENCODERS.values()]
    assert sizes[:3] == [194, 175, 145]


def program(folder: Path, script: str) -> Path:
    """Writes a shell script that stands in for `ladder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ladder"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_judge_is_the_newest_build_of_the_checkout_else_the_one_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(
        JudgeError, match="no `ladder` to judge trials with; `cargo build --release -p operator` builds"
    ):
        find_judge(tmp_path)
    for place in ("bin", "target/debug", "target/release"):
        built = program(tmp_path / place, "exit 0")
        assert find_judge(tmp_path).program == built


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'ladder: trial.json: a field' >&2; exit 1", "can't judge the trial: ladder: trial.json: a field$"),
        ("exit 1", "can't judge the trial: it ended with 1$"),
        # The output of an older `ladder` without `judge`.
        ("echo 'error: unrecognized subcommand' >&2; exit 2", "can't judge the trial: error: unrecognized subcommand$"),
        ('echo "{}" > "$2/result.json"', "is of another version than this client: result.json.schema is missing$"),
    ],
)
def test_a_bundle_that_cannot_be_judged_is_one_sentence(script: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=reason):
        Judge(program(tmp_path / "bin", script)).judge(tmp_path)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "5000 10000"}, 0.5),
        ({"cpu.max": "max 10000"}, None),
        ({"cpu.cfs_quota_us": "15000", "cpu.cfs_period_us": "10000"}, 1.5),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "10000"}, None),
        ({}, None),
    ],
)
def test_the_quota_is_read_from_both_versions_of_cgroups(
    files: dict[str, str], cpus: float | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert quota_of(tmp_path) == cpus


def test_a_process_without_a_cgroup_has_no_quota(tmp_path: Path) -> None:
    assert quota(tmp_path / "nothing") is None


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".lock", "a\n", "a" * 65])
def test_a_service_can_not_name_itself_like_a_path(name: str) -> None:
    assert service_name("rust-sync_1.0") == "rust-sync_1.0"
    with pytest.raises(SystemExit, match="can't name the service's results"):
        service_name(name)
