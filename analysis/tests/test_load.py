"""The error for a bundle that can't be read names the file, the fault and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bench_format.schemas import SCHEMA

from tests.bundles import Json, TrialSpec, bundle, edit
from ws_ladder_analysis.load import Bundle, BundleError, read_bundle

SPEC = TrialSpec(latencies={"response_ns": (1e6, 0.5)}, due=1_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle with one trial."""
    return bundle(tmp_path, [SPEC])


def test_a_bundle_is_read_whole(example_bundle: Bundle) -> None:
    assert len(example_bundle.trials) == 100
    finished = [trial for trial in example_bundle.trials if trial.result is not None]
    assert len(finished) == 99
    assert all(len(trial.workers) == 2 for trial in finished)
    assert example_bundle.strays == ()


def test_a_folder_without_a_bundle_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is not a bundle: it has no run\.json; name a folder such as"):
        read_bundle(tmp_path)


def test_a_file_cut_short_is_named(folder: Path) -> None:
    file = folder / "trials" / SPEC.folder / "result.json"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(BundleError, match=r"result\.json is broken: .* cut short"):
        read_bundle(folder)


def test_a_file_that_is_not_text_is_named(folder: Path) -> None:
    (folder / "run.json").write_bytes(b'{"schema": "\xff"}')
    with pytest.raises(BundleError, match=r"run\.json is broken: it isn't UTF-8"):
        read_bundle(folder)


def test_a_newer_schema_asks_for_a_newer_program(folder: Path) -> None:
    edit(folder / "run.json", lambda run: run.update(schema=SCHEMA + 1))
    with pytest.raises(
        BundleError, match=rf"run\.json: schema {SCHEMA + 1} is newer than {SCHEMA}.*use a newer ws-ladder"
    ):
        read_bundle(folder)


def test_a_file_without_a_schema_is_not_ours(folder: Path) -> None:
    edit(folder / "run.json", lambda run: run.pop("schema"))
    with pytest.raises(BundleError, match=r"run\.json: schema is missing"):
        read_bundle(folder)


def histogram_of(change: Json) -> Callable[[Json], None]:
    return lambda result: result["histograms"]["response_ns"].update(change)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda result: result.update(colour="red"), r"result\.json: the file has fields .*: colour"),
        (lambda result: result["figures"].update(speed=1), r"result\.json: figures has fields .*: speed"),
        (lambda result: result.pop("messages"), r"result\.json: messages is missing"),
        (
            lambda result: result["messages"].update(due="many"),
            r"result\.json: messages\.due should be int and is 'many'",
        ),
        (lambda result: result["trial"].update(tier=7), r"result\.json is of another trial"),
        (histogram_of({"v2": "AAAA"}), r"result\.json: histograms\.response_ns is not a V2 histogram"),
        (histogram_of({"count": 1}), r"histograms\.response_ns holds 1000 values but says 1"),
    ],
)
def test_a_broken_result_is_named_with_its_field(folder: Path, change: Callable[[Json], None], text: str) -> None:
    edit(folder / "trials" / SPEC.folder / "result.json", change)
    with pytest.raises(BundleError, match=text):
        read_bundle(folder)


def test_a_broken_worker_file_is_named(folder: Path) -> None:
    edit(folder / "trials" / SPEC.folder / "workers" / "1.json", lambda worker: worker.pop("window"))
    with pytest.raises(BundleError, match=r"workers/1\.json: window is missing"):
        read_bundle(folder)


def test_a_result_that_the_run_does_not_list_is_found(folder: Path) -> None:
    edit(folder / "run.json", lambda run: run.update(trials=[]))
    assert read_bundle(folder).strays == (SPEC.folder,)


def test_a_run_without_trials_is_a_bundle(tmp_path: Path) -> None:
    assert read_bundle(bundle(tmp_path, [])).trials == ()
