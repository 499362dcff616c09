"""The HTML page: valid structure, self-contained, most important content first."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.bundles import Json, TrialSpec, bundle, edit, open_load
from ws_ladder_analysis import drawing, report
from ws_ladder_analysis.load import BundleError
from ws_ladder_analysis.report import Report, write_report
from ws_ladder_analysis.wording import plain

SPEC = TrialSpec(latencies={"response_ns": (1e6, 0.5)}, due=1_000)
LATE = (("generator_late", "the generator was late: p99 of delay 61.0 ms, allowed 5 ms"),)
VOID = {"meta", "link", "br", "hr", "img", "input", "path", "rect", "line", "circle"}


class Page(HTMLParser):
    """Parses a page and collects faults in its structure."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.description: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"<{tag}> names an attribute twice")
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")
            if name == "href" and tag == "a":
                self.links.append(value or "")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID and tag not in self.open:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing at line {self.getpos()[0]}")

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.description.append(data)

    @property
    def text(self) -> str:
        """The text of the page with normalised white space."""
        return plain(re.sub(r"\s+", " ", " ".join(self.description).replace("\u00a0", " ")))


@pytest.fixture(scope="module")
def page(example_report: tuple[Path, Report]) -> Page:
    """The page of the example bundle."""
    return Page(example_report[0].read_text(encoding="utf-8"))


def page_of(folder: Path) -> Page:
    """Writes the report of a bundle and parses its page."""
    return Page(write_report(folder)[0].read_text(encoding="utf-8"))


def test_the_page_is_well_formed(page: Page) -> None:
    assert page.faults == []
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))


def test_the_page_needs_nothing_but_itself(example_report: tuple[Path, Report]) -> None:
    text = example_report[0].read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    assert "<script" not in text
    assert len(text.encode()) < 2_000_000


def test_the_page_has_a_language_and_a_title(page: Page) -> None:
    assert ("html", "lang", "en") in page.attributes
    assert "ws-ladder report: 2026-11-21-example" in page.text


def test_every_table_has_a_caption_and_can_be_reached_by_keyboard(example_report: tuple[Path, Report]) -> None:
    text = example_report[0].read_text(encoding="utf-8")
    assert text.count("<table>") == text.count("<caption>") == text.count('class="scroll" role="region" tabindex="0"')
    assert text.count('<th scope="row"') > 100


def test_every_chart_has_a_text_description(page: Page, example_report: tuple[Path, Report]) -> None:
    sections = example_report[1].sections
    labels = {value for tag, name, value in page.attributes if (tag, name) == ("div", "aria-label")}
    charts = [chart for section in sections for chart in (*section.charts, *section.distributions)]
    assert len(charts) == 28
    assert {chart.description for chart in charts} <= labels


def test_every_colour_of_a_chart_has_its_dark_twin(example_report: tuple[Path, Report]) -> None:
    text = example_report[0].read_text(encoding="utf-8")
    drawn = {
        colour for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL) for colour in re.findall(r'"(#\w{6})"', svg)
    }
    assert drawn <= set(drawing.COLOURS.values())
    assert set(drawing.COLOURS) == set(drawing.DARK)
    assert all(f'svg [fill="{colour}"]' in text for colour in drawn)


def test_unusable_trials_are_listed_before_any_ladder(page: Page) -> None:
    text = page.text
    reason = "invalid: the generator was late: p99 of delay 61.0 ms, allowed 5 ms"
    assert text.index(reason) < text.index("wse-server: connection-storm")
    assert "not measured: the service exited with status 1 before it was ready" in text


def test_load_and_witness_are_shown_with_the_figures(page: Page) -> None:
    for description in ("closed", "open, 25.0 k messages/s, constant", "application (the application counted it)"):
        assert description in page.text


def test_a_disagreement_is_shown_first_and_prominently(tmp_path: Path) -> None:
    root = bundle(tmp_path, [SPEC])
    edit(root / "trials" / SPEC.folder / "result.json", lambda result: result["messages"].update(delivered=1))
    page = page_of(root)
    assert page.text.index("The files disagree with themselves") < page.text.index("The most informative tier")
    assert "1000 messages were due but 1 have an outcome" in page.text
    assert ("section", "class", "alarm") in page.attributes


def test_an_empty_run_has_a_page(tmp_path: Path) -> None:
    page = page_of(bundle(tmp_path, [], state="running", finished_at=None))
    assert page.faults == []
    assert "This run has no trials." in page.text
    assert "This run is running, not finished: 0 of 0 trials left a result." in page.text


def test_a_run_in_which_all_is_invalid_has_a_page_without_figures(tmp_path: Path) -> None:
    specs = [replace(SPEC, tier=tier, reasons=LATE, due=778_000) for tier in (10, 20)]
    page = page_of(bundle(tmp_path, specs))
    assert page.faults == []
    assert "no valid trial" in page.text
    assert "0 of 2" in page.text
    # Figures of an invalid trial appear only under "Every trial", greyed.
    assert page.text.count("389 k") == page.text[page.text.index("Every trial") :].count("389 k") > 0


def test_a_run_of_failed_and_pending_trials_has_a_page(tmp_path: Path) -> None:
    specs = [
        replace(SPEC, state={"state": "failed", "reason": "no port"}),
        replace(SPEC, tier=200, state={"state": "pending"}),
    ]
    page = page_of(bundle(tmp_path, specs, state="failed"))
    assert page.faults == []
    assert "not measured: no port" in page.text
    assert "not started" in page.text


@pytest.mark.parametrize(
    "changes", [{"service": "サービス"}, {"workload": "fett&"}, {"variant": 'a"b|c'}, {"service": "../../etc"}]
)
def test_a_bundle_with_names_that_are_not_names_has_no_report(tmp_path: Path, changes: Json) -> None:
    with pytest.raises(BundleError, match="should be text that matches"):
        write_report(bundle(tmp_path, [replace(SPEC, **changes)]))


def test_markup_and_any_script_in_a_reason_are_only_text(tmp_path: Path) -> None:
    state = {"state": "failed", "reason": "<script>alert(1)</script> | Dienst サービス"}
    root = bundle(tmp_path, [replace(SPEC, state=state)])
    output, _ = write_report(root)
    page = output.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "Dienst サービス" in Page(page).text
    assert Page(page).faults == []
    assert "not measured: &lt;script>alert(1)&lt;/script> \\| Dienst サービス" in (root / "report/report.md").read_text(
        encoding="utf-8"
    )


def test_uncommitted_changes_show(tmp_path: Path) -> None:
    page = page_of(bundle(tmp_path, [SPEC], commit="8f07ac6+changes"))
    assert "8f07ac6+changes" in page.text


def test_the_tables_are_written_for_other_programs(example_report: tuple[Path, Report]) -> None:
    folder = example_report[0].parent
    rows = {}
    for name in ("trials", "percentiles", "books", "distributions", "comparisons"):
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows[name] = list(csv.DictReader(file))
    assert len(rows["trials"]) == 100
    late = [row for row in rows["trials"] if row["validity"] == "invalid"]
    assert [row["reasons"] for row in late] == ["the generator was late: p99 of delay 61.0 ms, allowed 5 ms"]
    few = [row for row in rows["percentiles"] if int(row["samples"]) < int(row["samples_needed"])]
    assert few
    assert all(row["value_ns"] == "" for row in few)
    assert {row["holds"] for row in rows["books"]} == {"true"}
    assert any(row["supported"] == "false" for row in rows["distributions"])
    assert {row["service"] for row in rows["comparisons"]} == {"wse-server"}


def test_every_chart_is_also_a_picture(example_report: tuple[Path, Report]) -> None:
    folder = example_report[0].parent
    pictures = {file.name for file in folder.glob("*.png")}
    assert len(pictures) == 28
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in folder.glob("*.png"))
    linked = set(re.findall(r"\]\((\S+?\.png)\)", (folder / "report.md").read_text(encoding="utf-8")))
    assert linked == pictures
    assert not list(folder.glob(".*"))


def test_the_markdown_has_the_same_content(example_report: tuple[Path, Report]) -> None:
    text = (example_report[0].parent / "report.md").read_text(encoding="utf-8")
    for description in (
        "| wse-server (throughput · batch) | 100 | >= 402 k delivered/s",
        "invalid: the generator was late: p99 of delay 61.0 ms, allowed 5 ms",
        "## How to read this page",
        "**witness**",
        "TCP_NODELAY",
    ):
        assert description in text


def test_a_run_without_latencies_has_no_latency_tables(tmp_path: Path) -> None:
    page = page_of(bundle(tmp_path, [replace(SPEC, latencies={})]))
    assert page.faults == []
    assert "Latency percentiles" not in page.text


def test_an_open_load_that_delivered_nothing_has_a_page(tmp_path: Path) -> None:
    spec = replace(SPEC, load=open_load(500), witness="reply", latencies={"delay_ns": (3e4, 0.5)}, dropped=1_000)
    page = page_of(bundle(tmp_path, [spec]))
    assert page.faults == []


def test_many_tiers_draw_only_the_ends_of_their_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_DISTRIBUTIONS", 3)
    specs = [replace(SPEC, tier=tier, due=100) for tier in (10, 20, 30, 40)]
    _, written = write_report(bundle(tmp_path, specs))
    (section,) = written.sections
    assert [chart.title for chart in section.distributions] == [
        "wse-server: 10 connections",
        "wse-server: 40 connections",
    ]
