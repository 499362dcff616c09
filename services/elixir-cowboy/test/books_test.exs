defmodule ElixirCowboy.BooksTest do
  # The books are one table of the whole runtime, so these tests don't run concurrently.
  use ExUnit.Case, async: false

  alias ElixirCowboy.{Books, Metrics}

  setup do
    Books.new()
    :ok
  end

  test "an update changes several counters at once" do
    Books.add([{:received, 3}, {:waiting, 2}, {{:dropped, :overflow}, 1}])
    counts = Books.read()
    assert {counts.received, counts.waiting, counts[{:dropped, :overflow}]} == {3, 2, 1}
  end

  test "a request moves frames from waiting to in flight, and the most in flight is one" do
    Books.add(received: 4, waiting: 4)
    for _ <- 1..2, do: Books.begin_request(2)
    counts = Books.read()
    assert {counts.waiting, counts.in_flight, counts.requests, counts.in_flight_per_connection_max} == {0, 4, 2, 1}
  end

  test "lateness is counted in the first bucket whose bound it doesn't exceed" do
    assert Books.lateness_bucket(0) == {:lateness, 0}
    assert Books.lateness_bucket(500_000) == {:lateness, 0}
    assert Books.lateness_bucket(500_001) == {:lateness, 1}
    assert Books.lateness_bucket(2_500_000_001) == {:lateness, 12}
  end

  test "the exposition has every metric of the contract, with all reasons from the start" do
    text = IO.iodata_to_binary(Metrics.exposition(Books.read(), 4096))
    contract = File.read!(Path.expand("../../README.md", __DIR__))
    names = Regex.scan(~r/^\| `[^|]*\| `((?:service|application)_[a-z_]+)/m, contract, capture: :all_but_first)
    assert length(names) >= 12

    for [name] <- names, not String.starts_with?(name, "application_") do
      assert text =~ "# TYPE #{name} ", name
    end

    assert text =~ ~s(service_messages_dropped_total{reason="closed"} 0\n)
    assert text =~ ~s(service_inference_failed_total{kind="timeout"} 0\n)
    assert text =~ ~s(service_flush_lateness_seconds_bucket{le="+Inf"} 0\n)
    assert text =~ "service_process_resident_bytes 4096\n"
  end
end
