"""Prints a history as text, JSON, JUnit XML and Bencher Metric Format."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from .. import bencher, wording
from ..bencher import Metric
from ..columns import aligned
from .changes import FEWEST_RUNS
from .trend import CONFIRM, Found, History, Standing, Trend


def text(found: History) -> str:
    """The history for a terminal: each change with its commits, and what is missing for the other series."""
    return wording.plain("\n".join(_lines(found)) + "\n")


def _lines(found: History) -> Iterator[str]:
    long = [trend for trend in found.trends if not trend.too_few]
    short = len(found.trends) - len(long)
    yield f"{found.runs} runs, {len(found.trends)} series; {len(long)} have at least {FEWEST_RUNS} runs"
    if short:
        yield f"{short} series: too few runs ({FEWEST_RUNS} are needed)"
    yield from (f"left out: {one}" for one in found.left_out)
    changed = [trend for trend in long if trend.changes]
    if not changed:
        yield "no change is named by both detectors"
    for trend in changed:
        place = trend.series.place
        yield f"\n{place.name}: {place.figure} (plan {place.plan}, {place.machine}, {len(trend.series.points)} runs)"
        yield from aligned([_change(trend, one) for one in trend.changes])
    if changed:
        yield f"\n{CONFIRM}"
    for trend in changed:
        yield from (line for one in trend.changes if one.standing is Standing.WORSE for line in _entry(trend, one))
    for one in found.unmatched:
        yield f"the acknowledgement of {one.figure}, {one.first}..{one.last} (plan {one.plan}) names no change"


def _change(trend: Trend, found: Found) -> tuple[str, ...]:
    shown = trend.series.figure.shown
    levels = f"{shown(found.change.before)} -> {shown(found.change.after)}"
    commits = f"{commit(found.last_before.commit)}..{commit(found.first_after.commit)}"
    why = f": {found.why}" if found.why else ""
    return f"  {step(found)}", levels, commits, f"before run {found.first_after.run}", f"{found.standing}{why}"


def _entry(trend: Trend, found: Found) -> Iterator[str]:
    """The entry that acknowledges a change, to be pasted into the file."""
    place = trend.series.place
    yield f"- plan: {place.plan}"
    yield f"  figure: {place.figure}"
    yield f"  commits: {commit(found.last_before.commit)}..{commit(found.first_after.commit)}"
    yield f"  series: {place.name}"
    yield "  why: "


def step(found: Found) -> str:
    """A change's step as text: `+5.1 %`."""
    return f"{100 * found.change.step:+.1f}{wording.GAP}%"


def commit(name: str) -> str:
    """The first digits of a commit, with its mark of local changes."""
    digits, plus, mark = name.partition("+")
    return (digits[:12] + plus + mark) or "no-commit"


def as_json(found: History) -> dict[str, object]:
    """The history as JSON values."""
    return {
        "runs": found.runs,
        "runs_needed": FEWEST_RUNS,
        "is_worse": found.is_worse,
        "note": CONFIRM,
        "left_out": list(found.left_out),
        "unmatched_acknowledgements": [
            {"plan": one.plan, "figure": one.figure, "commits": f"{one.first}..{one.last}"} for one in found.unmatched
        ],
        "series": [_series(trend) for trend in found.trends],
    }


def _series(trend: Trend) -> dict[str, object]:
    place = trend.series.place
    return {
        "plan": place.plan,
        "definition": place.definition,
        "machine": place.machine,
        "service": place.service,
        "workload": place.workload,
        "variant": place.variant,
        "tier": place.tier,
        "figure": place.figure,
        "more_is_better": trend.series.figure.more_is_better,
        "too_few_runs": trend.too_few,
        "points": [
            {"run": point.run, "started_at": point.started_at, "commit": point.commit, "value": point.value}
            for point in trend.series.points
        ],
        "changes": [
            {
                "index": one.change.index,
                "before": one.change.before,
                "after": one.change.after,
                "step": one.change.step,
                "last_before": one.last_before.run,
                "first_after": one.first_after.run,
                "commits": f"{one.last_before.commit}..{one.first_after.commit}",
                "standing": one.standing.value,
                "why": one.why,
            }
            for one in trend.changes
        ],
    }


def junit(found: History) -> str:
    """JUnit XML: a test case for each series; a change for the worse is a failure, too few runs is skipped."""
    root = ElementTree.Element("testsuites", name="ws-ladder history")
    suites: dict[str, list[Trend]] = {}
    for trend in found.trends:
        suites.setdefault(trend.series.place.plan, []).append(trend)
    for plan, trends in suites.items():
        counts = {
            "tests": len(trends),
            "failures": sum(trend.is_worse for trend in trends),
            "errors": 0,
            "skipped": sum(trend.too_few for trend in trends),
        }
        texts = {name: str(count) for name, count in counts.items()}
        suite = ElementTree.SubElement(root, "testsuite", {"name": plan, **texts})
        for trend in trends:
            _case(suite, trend)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, trend: Trend) -> None:
    place = trend.series.place
    case = ElementTree.SubElement(suite, "testcase", classname=place.name, name=place.figure)
    if trend.too_few:
        runs = f"too few runs: {len(trend.series.points)} of {FEWEST_RUNS}"
        ElementTree.SubElement(case, "skipped", message=runs)
    for one in trend.changes:
        if one.standing is Standing.WORSE:
            message = wording.plain(" ".join(part.strip() for part in _change(trend, one)))
            ElementTree.SubElement(case, "failure", message=f"{message}; {CONFIRM}")
            # JUnit allows one failure for each case; the page has all.
            break


def as_bencher(found: History) -> bencher.Results:
    """The newest run of each series, for Bencher, which keeps the history itself."""
    return bencher.results(
        Metric(trend.series.place.name, trend.series.place.figure, trend.series.points[-1].value, None)
        for trend in found.trends
    )
