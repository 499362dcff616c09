"""The table of `just bench-components` (`tools/component_summary.py`): figures, intervals and explanations."""

from __future__ import annotations

import json

import pytest
from component_summary import Component, Figure, Measured, Row, explanations, markdown, row, wire

COMPONENT = Component("HMAC-SHA256 sign", "hmac.digest", 18, 0.8)


def processes(*scales: float) -> list[Measured]:
    """One process per scale; its batches scatter around `scale` times 100 ns in Rust and 400 ns in Python."""
    scatter = (0.98, 0.99, 1.0, 1.01, 1.5)
    return [
        Measured([100 * scale * part for part in scatter], [400 * scale * part for part in scatter]) for scale in scales
    ]


def made(plain_ns: float) -> Row:
    return Row(COMPONENT, Figure(500, 450, 550), Figure(plain_ns, plain_ns, plain_ns), Figure(2, 1.9, 2.1), 7)


def width(figure: Figure) -> float:
    """The width of an interval."""
    assert figure.low is not None
    assert figure.high is not None
    return figure.high - figure.low


def test_a_figure_is_the_geometric_mean_of_the_processes_medians() -> None:
    one = row(COMPONENT, processes(1, 2, 4))
    assert (one.ours_ns.value, one.plain_ns.value, one.ratio.value) == pytest.approx((200, 800, 4))
    assert one.processes == 3
    assert (one.ratio.low, one.ratio.high) == (None, None)
    assert "4x (n/a)" in markdown([one])


def test_a_slow_process_widens_times_but_not_the_ratio_that_it_shares() -> None:
    calm, mixed = row(COMPONENT, processes(1, 1, 1, 1, 1)), row(COMPONENT, processes(1, 1, 2, 3, 3))
    assert width(mixed.ours_ns) > 10 * width(calm.ours_ns)
    assert width(mixed.ratio) < 0.3 * mixed.ratio.value
    assert mixed.ratio.value == pytest.approx(4)


def test_an_interval_holds_its_value_and_repeats() -> None:
    one = row(COMPONENT, processes(1, 1.1, 1.2, 1.3, 1.4))
    for figure in (one.ours_ns, one.plain_ns, one.ratio):
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= figure.value * (1 + 1e-9)
        assert figure.value <= figure.high * (1 + 1e-9)
    assert one == row(COMPONENT, processes(1, 1.1, 1.2, 1.3, 1.4))


@pytest.mark.parametrize("nothing", [[], [Measured([], [1])], [Measured([1], [1]), Measured([1], [])]])
def test_a_component_without_measurements_has_no_row(nothing: list[Measured]) -> None:
    with pytest.raises(ValueError, match="HMAC-SHA256 sign: a process has measured nothing"):
        row(COMPONENT, nothing)


def test_a_row_shows_both_times_the_ratio_and_what_was_published() -> None:
    lines = markdown([made(9000)]).splitlines()
    assert lines[2] == (
        "| HMAC-SHA256 sign | hmac.digest | 9 (9 to 9) | 0.5 (0.45 to 0.55) | 2x (1.9 to 2.1) | 18, 0.8, 22.5x |"
    )
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|")


def test_a_published_time_far_above_ours_is_explained() -> None:
    (said,) = explanations([made(1000)])
    assert said.startswith(
        "- HMAC-SHA256 sign (hmac.digest): published for Python is 18 times ours. The standard library"
    )
    assert explanations([made(9001)]) == []


def test_the_wire_form_is_json_with_all_figures() -> None:
    written = json.loads(json.dumps(wire([made(1000)], {"python": "3.12"})))
    (component,) = written["components"]
    assert component["rust_ns"] == {"value": 500, "low": 450, "high": 550}
    assert (component["published_python_us"], component["ratio"]["value"], component["processes"]) == (18, 2, 7)
    assert (written["schema"], written["environment"], len(written["unexplained"])) == (1, {"python": "3.12"}, 1)
