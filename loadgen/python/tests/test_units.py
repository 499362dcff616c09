"""The parts that need no service."""

import json
import zlib
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from bench_encoders import ENCODERS
from bench_format.meaning import balance
from bench_format.schemas import (
    ApplicationStats,
    ConnectionBook,
    Figures,
    LoadOpen,
    Message,
    Thresholds,
    TrialId,
    Witness,
)
from bench_format.wire import decode
from wse_py_bench.bench import assign
from wse_py_bench.cli import parse
from wse_py_bench.connection import Connection, ready_id
from wse_py_bench.equations import Delta, books, complete, witness
from wse_py_bench.figures import bound_by
from wse_py_bench.merge import merge
from wse_py_bench.payload import FIRST_SEQUENCE, FORMATS, composer, ponged
from wse_py_bench.profiles import PROFILES
from wse_py_bench.recorder import Recorder, WindowRecorder, add_up, percentiles
from wse_py_bench.trial import Assignment, Mark, Trial
from wse_py_bench.worker import _result

GOLDEN = Path(__file__).resolve().parents[3] / "services/testdata/wse-messages.json"
TRIAL = TrialId("s", "throughput", "json", 2, 1, 1)


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
    said = [decoded(name, size, 123_456_789) for name in FORMATS]
    assert said[0]["p"]["seq"] == 123_456_789
    assert said == [said[0]] * 3


def test_golden_messages_are_told_apart() -> None:
    golden = [one for one in json.loads(GOLDEN.read_text())["messages"] if one["from"] == "server"]
    assert {one["means"] for one in golden} >= {"server_ready", "pong", "server_ping", "event"}
    for one in golden:
        data = bytes.fromhex(one["hex"])
        text = data.decode() if one["opcode"] == "text" else data
        assert ready_id(text) == (one["connection_id"] if one["means"] == "server_ready" else None), one["name"]
        if isinstance(text, str):
            assert ponged(text) == (one["client_timestamp"] if one["means"] == "pong" else None), one["name"]


def test_merging_histograms_is_adding() -> None:
    def recorded(values: range) -> Recorder:
        recorder = Recorder()
        for value in values:
            recorder.record(value)
        return recorder

    halves = [{"response_ns": recorded(part).encode()} for part in (range(1, 500), range(500, 900))]
    assert add_up(halves)["response_ns"] == recorded(range(1, 900)).encode()
    few = percentiles(recorded(range(1, 400)).encode())
    assert (few["p99"], few["p50"]) == (None, 200)


def test_each_second_with_values_is_an_interval() -> None:
    recorder = WindowRecorder(1_000_000_000)
    for at_ns in (1_100_000_000, 1_200_000_000, 4_500_000_000):
        recorder.record("response_ns", 5, at_ns)
    assert recorder.finish()["response_ns"].count == 3
    seen = [(one.start_ns, one.histograms["response_ns"].count) for one in recorder.intervals]
    assert seen == [(0, 2), (3_000_000_000, 1)]


def assignment() -> Assignment:
    load = LoadOpen(4.0)
    return Assignment("r", TRIAL, 0, 1, "127.0.0.1:1", "t", 1, 0, load, Message(), 0, 1, 1)


def flood(sent: int) -> Trial:
    """One connection that sent so many messages."""
    connection = Connection("a", next=FIRST_SEQUENCE + sent)
    trial = Trial(assignment(), connections=[connection], attempted=1)
    trial.marks = [Mark(0, 0, 0, 0, 0, 0), Mark(10**9, sent, sent, 0, sent, 10**8)]
    return trial


def balanced(delivered: int, sequence_sum: int, dropped: dict[str, int]) -> bool:
    merged = merge([_result(flood(10), 0, (0, 0, 0))])
    application = ApplicationStats(delivered, sequence_sum, 0)
    delta = Delta(1, 11, 1, delivered, dropped, 0, application)
    counted = {"id": "a", "open": True, "received": 11, "consumed": 1, "dropped": sum(dropped.values())}
    service = decode(ConnectionBook, {**counted, "application": vars(application)}, "")
    return balance(books(merged, Witness.APPLICATION, delta, [service]))


def test_honest_books_balance_and_a_liar_is_caught_by_the_sum_of_the_numbers() -> None:
    total = sum(range(FIRST_SEQUENCE, FIRST_SEQUENCE + 10))
    assert balanced(10, total, {})
    assert not balanced(10, total - 1, {})
    assert balanced(9, 5, {"inbound_overflow": 1})
    assert not balanced(8, 5, {"inbound_overflow": 1})


def test_what_nobody_accounts_for_is_lost() -> None:
    messages = merge([_result(flood(10), 0, (0, 0, 0))]).messages
    delta = Delta(1, 11, 1, 8, {}, 0, ApplicationStats(8, 0, 0))
    assert complete(messages, Witness.APPLICATION, delta).lost == 2
    assert witness(Witness.APPLICATION, None) is Witness.NONE


def test_a_flood_says_which_side_bound_it() -> None:
    def bound(service: float | None, worker: float) -> str | None:
        shares = Figures(1.0, service_cpu_share=service, worker_cpu_share=worker)
        return bound_by(PROFILES_CLOSED, shares, Thresholds())

    assert [bound(0.95, 0.2), bound(0.2, 0.95), bound(1, 1), bound(0.1, 0.1)] == [
        "service",
        "generator",
        "both",
        "neither",
    ]
    assert bound(None, 1) is None
    assert bound_by(LoadOpen(1.0), Figures(1.0, service_cpu_share=1, worker_cpu_share=1), Thresholds()) is None


def test_the_published_command_lines_are_understood() -> None:
    assert parse("multiprocess", "", ["--workers", "64"]).workers == 64
    brutal = parse("brutal", "", ["--connections", "1000", "--duration", "5", "--token", "t"])
    assert (brutal.tiers, brutal.token, brutal.words) == ((1000,), "t", ("--connections", "1000", "--duration", "5"))
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


PROFILES_CLOSED = PROFILES["multiprocess"](parse("multiprocess", "", []))[0].load(1)


def test_the_encoders_make_the_published_sizes() -> None:
    sizes = [len(encode()) for encode in ENCODERS.values()]
    assert sizes[:3] == [194, 175, 145]
