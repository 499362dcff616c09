"""Which service to choose: the rules that sentences about capacities and lines of code follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from bench_format.schemas import Run, Search

from tests.test_capacity import searched
from ws_ladder_analysis.choice import choices, options, picture
from ws_ladder_analysis.load import read_bundle
from ws_ladder_analysis.report import write_report

Found = Mapping[str, tuple[float, float, float, int]]


def run_with(folder: Path, found: Found) -> Run:
    """A run with a search for each service: its capacity, the ends of its interval, and its lines of code."""
    run = read_bundle(searched(folder)).run
    [search] = run.searches
    searches = []
    for service, (load, low, high, _) in found.items():
        assert search.found is not None
        assert search.found.capacity is not None
        assert search.found.capacity.estimate is not None
        estimate = replace(search.found.capacity.estimate, load=load, low=low, high=high)
        capacity = replace(search.found.capacity, estimate=estimate)
        searches.append(replace(search, service=service, found=replace(search.found, capacity=capacity)))
    return replace(run, searches=searches, lines={name: lines for name, (*_, lines) in found.items()})


def test_a_service_with_fewer_sessions_and_more_code_is_outdone_and_named_with_what_outdoes_it(tmp_path: Path) -> None:
    found: Found = {"fast": (900, 880, 920, 2000), "short": (300, 290, 310, 500), "neither": (200, 190, 210, 1500)}
    said = choices(run_with(tmp_path, found))
    assert said[0] == "fast carries most: 900 sessions, 2\u202f000 lines of code."
    assert said[1] == ("short has the least code, 500 lines. A session costs 3.00 times as much CPU in it as in fast.")
    assert said[2] == "More sessions cost more code among fast and short: none of them is outdone in both."
    assert said[3] == "neither is outdone by short, which carries more sessions with less code."


def at_least(run: Run, service: str, load: int) -> Run:
    """The run where the search of a service ended at its largest load, which was confirmed."""

    def ended(search: Search) -> Search:
        if search.service != service:
            return search
        assert search.found is not None
        assert search.found.capacity is not None
        capacity = replace(search.found.capacity, estimate=None)
        return replace(search, found=replace(search.found, capacity=capacity, confirmed=load, at_least=True))

    return replace(run, searches=[ended(search) for search in run.searches])


def test_a_service_that_carried_the_largest_load_carries_most(tmp_path: Path) -> None:
    found: Found = {"fast": (0, 0, 0, 900), "faster": (0, 0, 0, 800), "bounded": (900, 880, 920, 700)}
    run = at_least(at_least(run_with(tmp_path, found), "fast", 1600), "faster", 1600)
    said = choices(run)
    assert said[0] == (
        "faster carries most: >=\u00a01\u202f600 sessions, 800 lines of code. No difference from it is shown for fast."
    )
    assert said[1].endswith("A session costs at least 1.78 times as much CPU in it as in faster.")
    assert not any("fast is outdone" in one for one in said), "both may carry more than they did"
    drawn = picture(run)
    assert drawn is not None
    assert "faster: >=\u00a01\u202f600 in 800 lines" in drawn.description
    assert "fast (≥)" in drawn.svg


def test_a_difference_is_not_named_where_intervals_overlap(tmp_path: Path) -> None:
    found: Found = {"one": (500, 480, 520, 1000), "other": (490, 470, 510, 1200)}
    said = choices(run_with(tmp_path, found))
    assert "No difference from it is shown for other." in said[0]
    assert said[1].endswith("has the least code, 1\u202f000 lines, too.")
    assert "one and other" in said[2]
    assert not any("outdone by" in one for one in said)


def test_a_service_without_less_code_than_another_is_outdone_only_beyond_both_intervals(tmp_path: Path) -> None:
    found: Found = {"one": (500, 480, 520, 1000), "other": (470, 460, 479, 1000)}
    said = choices(run_with(tmp_path, found))
    assert said[-1] == "other is outdone by one, which carries more sessions with no more code."


@pytest.mark.parametrize("found", [{"one": (500.0, 480.0, 520.0, 1000)}, {}])
def test_fewer_than_two_services_leave_nothing_to_choose(tmp_path: Path, found: Found) -> None:
    run = run_with(tmp_path, found)
    assert len(options(run)) == len(found)
    assert choices(run) == ()
    assert picture(run) is None


def test_the_picture_names_every_service_and_its_interval(tmp_path: Path) -> None:
    found: Found = {"fast": (900.0, 880.0, 920.0, 2000), "short": (30.5, 29.0, 32.0, 500)}
    drawn = picture(run_with(tmp_path, found))
    assert drawn is not None
    assert "fast: 900 [880, 920] in 2000 lines; short: 30.5 [29.0, 32.0] in 500 lines" in drawn.description
    assert drawn.svg.count(">fast<") == 1


def test_the_report_of_one_search_has_no_picture_and_no_choice(tmp_path: Path) -> None:
    page, report = write_report(searched(tmp_path))
    assert report.capacity_picture is None
    assert "carries most" not in page.read_text()
