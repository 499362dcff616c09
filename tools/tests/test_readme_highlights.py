"""The README's rows are those of docs/RESULTS.md."""

from __future__ import annotations

import readme_highlights
from readme_highlights import ROOT, between, cells, parts, replaced

ORIGIN = "Medians. `ladder run x` at commit\n`abc`; 2 CPUs."


def test_the_engine_shows_the_rows_with_most_messages_per_write() -> None:
    block = (
        f"\n{ORIGIN}\n\n| delivery | ratio |\n| --- | ---: |\n| dict, 1 | 1 |\n| dict, 64 | 2 |\n| batch, 64 | 3 |\n\n"
    )
    shown = readme_highlights.engine(block)
    assert shown == f"{ORIGIN}\n\n| delivery | ratio |\n| --- | ---: |\n| dict, 64 | 2 |\n| batch, 64 | 3 |\n"


def test_the_gateways_show_the_highest_load_with_the_main_columns() -> None:
    columns = ("published ratio", *readme_highlights.GATEWAY_COLUMNS)
    table = "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns)))

    def row(name: str) -> str:
        return f"| 9 | {name} | {' | '.join('1' * (len(columns) - 2))} |"

    low = f"**500 sessions**\n\n{table}\n{row('a')}\n{row('b')}\n"
    block = f"\n{ORIGIN}\n\n{low}\n**1 000 sessions**\n\n{table}\n{row('a')}\n"
    shown = readme_highlights.gateways(block)
    assert shown.startswith(f"{ORIGIN}\n\n**1 000 sessions**\n\n| gateway | CPU per frame |")
    _, [[head, _, *rows]] = parts(shown)
    assert cells(head) == list(readme_highlights.GATEWAY_COLUMNS)
    assert [cells(each)[0] for each in rows] == ["a"]


def test_the_first_run_shows_some_ladders_with_the_main_columns() -> None:
    columns = ("load", *readme_highlights.FIRST_RUN_COLUMNS)
    table = "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns)))
    ladders = ["ping-latency · closed", *readme_highlights.FIRST_RUN_ROWS]
    rows = "\n".join(f"| 9 | wse-server ({name}) | {' | '.join('1' * (len(columns) - 2))} |" for name in ladders)
    _, [[head, _, *kept]] = parts(readme_highlights.first_run(f"\n{ORIGIN}\n\n{table}\n{rows}\n"))
    assert cells(head) == list(readme_highlights.FIRST_RUN_COLUMNS)
    assert [cells(each)[0] for each in kept] == [f"wse-server ({name})" for name in ladders[1:]]


def test_only_text_between_the_markers_is_replaced() -> None:
    page = "head\n<!-- BEGIN: part -->\nold\n<!-- END: part -->\ntail\n"
    new = replaced(page, "part", "new\n")
    assert new == "head\n<!-- BEGIN: part -->\n\nnew\n\n<!-- END: part -->\ntail\n"
    assert between(new, "part").strip() == "new"


def test_the_readme_agrees_with_the_results() -> None:
    readme, results = (ROOT / "README.md").read_text(), (ROOT / "docs/RESULTS.md").read_text()
    assert between(readme, "first-run").strip() == readme_highlights.first_run(between(results, "results")).strip()
    assert between(readme, "engine").strip() == readme_highlights.engine(between(results, "comparison")).strip()
    assert between(readme, "gateways").strip() == readme_highlights.gateways(between(results, "sessions")).strip()
