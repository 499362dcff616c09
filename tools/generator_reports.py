"""Reads what each load generator reports of its own run: how many messages, and which latencies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench_format.histogram import at_rank
from ws_ladder_analysis.ladders import Percentile
from ws_ladder_analysis.load import read_bundle

NANOSECONDS_PER_MILLISECOND = 1e6


class ReportError(Exception):
    """A tool left no report that can be read."""


@dataclass(frozen=True)
class Report:
    """A tool's own figures; a latency that it doesn't report is absent."""

    counted: int
    reported_ms: dict[str, float]


def read(name: str, folder: Path) -> Report:
    """The report that a tool left in its folder. Raises `ReportError` where there is none."""
    try:
        return READERS[name](folder)
    except (OSError, LookupError, ValueError) as error:
        raise ReportError(f"its report can't be read ({type(error).__name__}: {error})") from error


def artillery(folder: Path) -> Report:
    found = json.loads((folder / "report.json").read_text())["aggregate"]
    latency = found["latency"]
    return Report(found["requestsCompleted"], {"p50": latency["median"], "p99": latency["p99"], "max": latency["max"]})


def locust(folder: Path) -> Report:
    """Percentiles are those that it prints: of response times that it has rounded and counted."""
    (stats,) = [one for one in json.loads((folder / "report.json").read_text()) if one["name"] == "echo"]
    number, times = stats["num_requests"], {float(time): count for time, count in stats["response_times"].items()}
    return Report(
        number - stats["num_failures"],
        {
            "mean": stats["total_response_time"] / number,
            "p50": at_share(times, number, 0.5),
            "p99": at_share(times, number, 0.99),
            "max": stats["max_response_time"],
        },
    )


def at_share(times: Mapping[float, int], number: int, share: float) -> float:
    """Locust's rule: the highest time above which there are no more than the rest of the requests."""
    above = 0
    for time in sorted(times, reverse=True):
        above += times[time]
        if number - above <= int(number * share):
            return time
    raise ReportError("it counted no response times")


def gatling(folder: Path) -> Report:
    """The figures that it prints with its assertions: `echo: mean of response time is … (actual : 21.0)`."""
    titles = {
        "counted": "count of successful events",
        "mean": "mean of response time",
        "p50": "50th percentile of response time",
        "p99": "99th percentile of response time",
        "max": "max of response time",
    }
    text = (folder / "output").read_text()
    found = {name: actual(text, title) for name, title in titles.items()}
    return Report(int(found.pop("counted")), found)


def actual(text: str, title: str) -> float:
    match = re.search(rf"echo: {title} is .*\(actual : ([\d.]+)\)", text)
    if match is None:
        raise ReportError(f"it printed no {title}")
    return float(match[1])


def tsung(folder: Path) -> Report:
    """The last line of the transaction. Its columns: count, mean and deviation of the interval, then the maximum and
    the minimum, then mean and count of all before it."""
    (file,) = folder.glob("log/*/tsung.log")
    lines = [line.split() for line in file.read_text().splitlines() if line.startswith("stats: tr_echo ")]
    count, mean, _, highest, _, mean_before, count_before = map(float, lines[-1][2:9])
    whole = count + count_before
    return Report(int(whole), {"mean": (count * mean + count_before * mean_before) / whole, "max": highest})


def ours(folder: Path) -> Report:
    (bundle,) = (folder / "results").iterdir()
    (trial,) = read_bundle(bundle).trials
    if trial.result is None:
        raise ReportError("the trial has no result")
    milliseconds = {
        name: value / NANOSECONDS_PER_MILLISECOND
        for name, at in (("p50", 50.0), ("p99", 99.0))
        if (value := Percentile("response_ns", at)(trial)) is not None
    }
    values = trial.histograms["response_ns"]
    mean = sum(value * count for value, count in values.counts.items()) / max(values.count, 1)
    whole = {"mean": mean, "max": at_rank(values, values.total)}
    milliseconds |= {name: value / NANOSECONDS_PER_MILLISECOND for name, value in whole.items()}
    return Report(trial.result.messages.delivered, milliseconds)


READERS: Mapping[str, Callable[[Path], Report]] = {
    "artillery": artillery,
    "gatling": gatling,
    "locust": locust,
    "tsung": tsung,
    "ws-bench": ours,
}
