"""Publications that take different paths to their subscribers, side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.bundles import Json, TrialSpec, bundle, edit, open_load
from tests.test_fanout import FLOOD
from ws_ladder_analysis.cells import Table
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.fanout import fanout_paths
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.published_tables import published_tables
from ws_ladder_analysis.statistics import PAIRS_NEEDED

REDIS = replace(FLOOD, service="wse-server-fanout-redis", workload="fanout-redis", lost=0, due=20_000)
CLUSTER = replace(REDIS, service="wse-server-fanout-cluster", workload="fanout-cluster", due=40_000)
SECOND_NS = 1_000_000_000


def processes(spec: TrialSpec) -> list[TrialSpec]:
    """The same trial in as many processes as an interval needs."""
    return [replace(spec, process=number) for number in range(1, PAIRS_NEEDED + 1)]


def tables(folder: Path, *specs: TrialSpec) -> tuple[Table, ...]:
    """The tables of paths for a run with these trials."""
    return fanout_paths(ladders(read_bundle(bundle(folder, list(specs)))))


def texts(table: Table) -> list[list[str]]:
    """The texts of a table's cells by row."""
    return [[cell.text for cell in row] for row in table.rows]


def test_a_run_with_one_path_has_no_comparison_of_paths(tmp_path: Path) -> None:
    assert tables(tmp_path, *processes(REDIS)) == ()


def test_the_highest_rate_of_each_path_is_shown_with_its_losses(tmp_path: Path) -> None:
    lossy = replace(FLOOD, tier=10)
    peaks, *_ = tables(tmp_path, FLOOD, lossy, REDIS, CLUSTER)
    rows = {row[0]: row[1:] for row in texts(peaks)}
    assert list(rows) == ["one instance", "Redis", "cluster"]
    assert rows["Redis"][1] == "100"
    assert (rows["one instance"][3], rows["Redis"][3]) == ("400", "0")


def test_a_cluster_is_compared_with_redis_with_an_interval(tmp_path: Path) -> None:
    _, compared = tables(tmp_path, *processes(CLUSTER), *processes(REDIS))
    assert compared.caption == "flood: wse-server-fanout-cluster compared with wse-server-fanout-redis"
    rates = [row for row in texts(compared) if row[1] == "delivered per second"]
    assert [row[4].replace("\u00a0", " ") for row in rates] == ["2.00 ×"]
    assert rates[0][-1] == "wse-server-fanout-cluster is better"


def test_at_a_pace_there_is_no_rate_to_compare_but_a_latency(tmp_path: Path) -> None:
    def paced(spec: TrialSpec) -> TrialSpec:
        return replace(spec, variant="paced", load=open_load(200), latencies={"response_ns": (1e6, 0.4)})

    (compared,) = tables(tmp_path, *processes(paced(CLUSTER)), *processes(paced(REDIS)))
    figures = {row[1] for row in texts(compared)}
    assert "p99 of response" in figures
    assert "delivered per second" not in figures


def test_the_cost_of_a_delivery_is_shown_by_process(tmp_path: Path) -> None:
    folder = bundle(tmp_path, [REDIS, CLUSTER])
    names = {"publisher": 1, "subscriber": 2, "redis": 4}
    for file in folder.glob("trials/**/fanout-redis/**/result.json"):

        def report_links(result: Json) -> None:
            for at, seconds in (("window_start", 0), ("window_end", 1)):
                result["service"][at]["processes"] = {
                    name: {"pid": pid, "cpu_ns": seconds * pid * SECOND_NS, "rss_bytes": 1}
                    for name, pid in names.items()
                }

        edit(file, report_links)
    *_, cost = fanout_paths(ladders(read_bundle(folder)))
    assert "by process" in cost.caption
    assert [column.title for column in cost.columns][2:] == list(names)
    (row,) = texts(cost)
    # For 20 000 deliveries, 1, 2 and 4 s are 50, 100 and 200 s per million.
    assert [cell.replace("\u00a0", " ") for cell in row[2:]] == ["50.0 s", "100 s", "200 s"]


def test_each_path_is_shown_with_its_published_figure_without_a_ratio(tmp_path: Path) -> None:
    folder = bundle(tmp_path, [FLOOD, REDIS, CLUSTER])
    found = {table.caption: table for table in published_tables(ladders(read_bundle(folder)))}
    theirs = {"one instance": "4.30", "Redis": "1.60", "cluster": "1.90"}
    for way, figure in theirs.items():
        table = found[f"Floods of a publisher: {way}"]
        published, ours = texts(table)
        assert published[2].startswith(figure)
        assert ours[-1].startswith("not comparable, because theirs is every message that a client parsed")


def test_an_honest_bundle_has_no_disagreement(tmp_path: Path) -> None:
    found = check(read_bundle(bundle(tmp_path, [FLOOD, *processes(REDIS), *processes(CLUSTER)])))
    assert [one.description for one in found.disagreements] == []
