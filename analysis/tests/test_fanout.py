"""Trials in which a service publishes: their tables and their checks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundles import TrialSpec, bundle, open_load
from ws_ladder_analysis import tables
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import read_bundle

FLOOD = TrialSpec(
    "wse-server-fanout",
    "fanout-broadcast",
    "flood",
    100,
    latencies={"age_ns": (2e7, 0.4)},
    witness="receiver",
    due=40_000,
    lost=200,
)
PACED = replace(FLOOD, variant="paced", load=open_load(200), latencies={"response_ns": (1e6, 0.4)}, lost=0)


def row(folder: Path, spec: TrialSpec) -> dict[str, str]:
    """The only row of a ladder's table, keyed by column title."""
    (ladder,) = ladders(read_bundle(bundle(folder, [spec])))
    table = tables.tiers(ladder)
    (cells,) = table.rows
    return {column.title: cell.text for column, cell in zip(table.columns, cells, strict=True)}


def test_a_flood_shows_deliveries_loss_and_the_age_of_its_backlog_but_no_latency(tmp_path: Path) -> None:
    shown = row(tmp_path, FLOOD)
    assert shown["delivered/s"].replace("\u202f", "").startswith("19.9")
    assert (shown["published/s"], shown["lost"], shown["messages per read"]) == ("200", "200", "10.0")
    assert shown["p50 age"] != "n/a"
    assert not any("response" in title for title in shown)
    assert "written/s" not in shown


def test_at_a_pace_there_is_a_latency(tmp_path: Path) -> None:
    shown = row(tmp_path, PACED)
    assert shown["p99 response"] != "n/a"
    assert shown["lost"] == "0"
    assert not any("age" in title.split() for title in shown)


@pytest.mark.parametrize("spec", [FLOOD, PACED], ids=["flood", "paced"])
def test_an_honest_trial_has_no_disagreement(tmp_path: Path, spec: TrialSpec) -> None:
    found = check(read_bundle(bundle(tmp_path, [spec])))
    assert [one.description for one in found.disagreements] == []
    assert found.compared > 10


def test_a_receiver_with_inconsistent_numbers_is_found_again(tmp_path: Path) -> None:
    folder = bundle(tmp_path, [FLOOD])
    (file, *_) = sorted(folder.glob("trials/**/workers/0.json"))
    worker = json.loads(file.read_text())
    worker["books"][0]["receiver"]["received"] -= 1
    file.write_text(json.dumps(worker))
    description = [one.description for one in check(read_bundle(folder)).disagreements]
    assert any("connections are said to differ" in one for one in description), description
