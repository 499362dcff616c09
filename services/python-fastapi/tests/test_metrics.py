"""Tests of the books and of the metrics that show them."""

from python_fastapi.metrics import Books, add, prometheus, stats


def test_the_sum_of_two_readings_is_a_reading() -> None:
    first, second = Books(), Books()
    first.received, second.received = 2, 3
    first.dropped["closed"], second.dropped["overflow"] = 1, 4
    first.tick("empty", 0.003)
    both = add(first.snapshot(), second.snapshot())
    shown = stats(both, 1.0)
    assert shown["messages"]["received"] == 5
    assert shown["messages"]["dropped"] == {"closed": 1, "overflow": 4}
    assert sum(both["lateness"]) == 1


def test_a_tick_is_in_the_bucket_of_its_bound() -> None:
    books = Books()
    for lateness in (0.0, 0.0005, 0.0006, 9.0):
        books.tick("empty", lateness)
    text = prometheus(books.snapshot(), 1.0, 4096)
    assert 'service_flush_lateness_seconds_bucket{le="0.0005"} 2' in text
    assert 'service_flush_lateness_seconds_bucket{le="0.001"} 3' in text
    assert 'service_flush_lateness_seconds_bucket{le="+Inf"} 4' in text
    assert "service_process_resident_bytes 4096" in text
