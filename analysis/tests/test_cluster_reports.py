"""Reports in a cluster: made while nothing is climbed, of every ended run, and never inside a bundle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.bundles import TrialSpec, bundle
from ws_ladder_analysis.cluster_reports import Keeper

SPEC = TrialSpec(latencies={"response_ns": (1e6, 0.5)}, due=1_000)


class Operator:
    """Answers `/api/status` with a state after another; the last one stays."""

    def __init__(self) -> None:
        self.states = ["finished"]
        self.asked = 0
        self.url = ""

    def state(self) -> str:
        """The state of this answer."""
        self.asked += 1
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


@contextmanager
def served() -> Iterator[Operator]:
    """An operator on loopback."""
    operator = Operator()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"state": operator.state()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Keeps the output of the tests short."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    operator.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield operator
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def operator() -> Iterator[Operator]:
    """An operator that climbs nothing."""
    with served() as operator:
        yield operator


@pytest.fixture
def keeper(tmp_path: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """A keeper with the bundle `r` of an ended run."""
    # The report is made by a process of its own.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    results, reports = tmp_path / "results", tmp_path / "reports"
    reports.mkdir()
    written = bundle(results, [SPEC])
    written.rename(results / "r")
    return Keeper(results, reports, operator.url)


def files(folder: Path) -> dict[Path, bytes]:
    """The content of each file by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_ended_run_gets_its_report_once_and_its_bundle_is_not_touched(keeper: Keeper) -> None:
    before = files(keeper.results)
    assert keeper.pass_over() == ["r"]
    assert "<html" in (keeper.reports / "r/report.html").read_text()
    assert list(keeper.reports.iterdir()) == [keeper.reports / "r"]
    assert files(keeper.results) == before
    assert keeper.pass_over() == []


def test_nothing_is_made_while_a_run_is_climbed_or_the_operator_is_away(keeper: Keeper, operator: Operator) -> None:
    operator.states = ["climbing"]
    assert keeper.pass_over() == []
    assert operator.asked == 1
    keeper.operator = "http://127.0.0.1:1"
    assert keeper.pass_over() == []
    assert list(keeper.reports.iterdir()) == []


def test_a_report_that_is_being_made_is_dropped_when_a_run_begins_and_made_after_it(
    keeper: Keeper, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ws_ladder_analysis.cluster_reports._GLANCE", 0.01)
    operator.states = ["finished", "climbing"]
    assert keeper.pass_over() == []
    assert not (keeper.reports / "r").exists()
    operator.states = ["idle"]
    assert keeper.pass_over() == ["r"]


def test_a_run_that_goes_on_has_no_report_and_one_that_was_measured_again_gets_a_new_one(keeper: Keeper) -> None:
    run = keeper.results / "r/run.json"
    ended = run.read_text()
    run.write_text(json.dumps({**json.loads(ended), "state": "running"}))
    assert keeper.pass_over() == []
    run.write_text(ended)
    assert keeper.pass_over() == ["r"]
    made = (keeper.reports / "r/report.html").stat().st_mtime
    os.utime(run, (made + 60, made + 60))
    assert keeper.pass_over() == ["r"]


def test_a_bundle_that_cannot_be_read_keeps_no_other_from_its_report_and_is_tried_later(keeper: Keeper) -> None:
    broken = keeper.results / "broken"
    broken.mkdir()
    (broken / "run.json").write_text('{"state": "finished"}')
    assert keeper.pass_over() == ["r"]
    assert list(keeper.later) == ["broken"]
    keeper.later["broken"] = 0.0
    shutil.copytree(keeper.results / "r", broken, dirs_exist_ok=True)
    assert keeper.pass_over() == ["broken"]


def test_older_runs_get_their_reports_after_newer_ones(keeper: Keeper) -> None:
    shutil.copytree(keeper.results / "r", keeper.results / "older")
    os.utime(keeper.results / "older/run.json", (0, 0))
    assert keeper.pass_over() == ["r", "older"]


def test_the_report_of_a_bundle_that_is_gone_is_removed(keeper: Keeper) -> None:
    assert keeper.pass_over() == ["r"]
    shutil.rmtree(keeper.results / "r")
    assert keeper.pass_over() == []
    assert list(keeper.reports.iterdir()) == []


def test_the_program_ends_by_sigterm(keeper: Keeper, operator: Operator) -> None:
    options = ["--results", str(keeper.results), "--reports", str(keeper.reports), "--operator", operator.url]
    command = [sys.executable, "-m", "ws_ladder_analysis", "reports", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        assert program.stderr.readline() == "made the report of r\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 0
