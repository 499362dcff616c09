package wsladder.gateway

class BooksSuite extends munit.FunSuite:
  test("updated counters are in /stats and in /metrics"):
    val books = Books()
    assertEquals(books.admit(isAccepting = true, limit = 1), None)
    assertEquals(books.admit(isAccepting = true, limit = 1), Some("full"))
    assertEquals(books.admit(isAccepting = false, limit = 0), Some("draining"))
    books.update: books =>
      books.received += 3
      books.dropped.add("overflow", 2)
      books.tick("flushed", 1_500_000)
    assert(books.stats.contains("\"received\":3"), books.stats)
    assert(books.stats.contains("\"rejected\":{\"full\":1,\"draining\":1}"), books.stats)
    assert(books.metrics.contains("service_messages_dropped_total{reason=\"overflow\"} 2\n"), books.metrics)
    assert(books.metrics.contains("service_flush_lateness_seconds_bucket{le=\"0.001\"} 0\n"), books.metrics)
    assert(books.metrics.contains("service_flush_lateness_seconds_bucket{le=\"0.002\"} 1\n"), books.metrics)
    assert(books.metrics.contains("service_flush_ticks_total{outcome=\"flushed\"} 1\n"), books.metrics)
