defmodule ElixirCowboy.Metrics do
  @moduledoc """
  The metrics port: `/healthz`, `/readyz`, `/stats`, `/metrics`.

  It has its own listener, and its requests run at high priority, so that the scheduler runs them before any
  session.
  """

  @behaviour :cowboy_handler

  alias ElixirCowboy.{Books, Gateway}

  @impl true
  def init(request, page) do
    Process.flag(:priority, :high)
    {status, type, body} = respond(:cowboy_req.method(request), page)
    {:ok, :cowboy_req.reply(status, %{"content-type" => type}, body, request), page}
  end

  defp respond(method, _page) when method not in ["GET", "HEAD"], do: {405, "text/plain", "GET only\n"}
  defp respond(_method, :healthz), do: {200, "text/plain", "ok\n"}
  defp respond(_method, :stats), do: {200, "application/json", JSON.encode_to_iodata!(stats(Books.read()))}
  defp respond(_method, :metrics), do: {200, "text/plain; version=0.0.4", exposition(Books.read(), resident_bytes())}

  defp respond(_method, :readyz) do
    if Gateway.draining?(), do: {503, "text/plain", "stopping\n"}, else: {200, "text/plain", "ready\n"}
  end

  @doc "Returns the body of `/stats` for a reading."
  @spec stats(map()) :: map()
  def stats(counts) do
    %{
      service: "elixir-cowboy",
      version: Gateway.version(),
      uptime_seconds: Gateway.uptime_seconds(),
      connections: %{
        accepted: counts.accepted,
        open: counts.open,
        closed: nonzero(counts, :closed),
        rejected: nonzero(counts, :rejected)
      },
      messages: %{
        received: counts.received,
        consumed: counts.consumed,
        delivered: counts.delivered,
        dropped: nonzero(counts, :dropped),
        queued: counts.waiting + counts.in_flight,
        malformed: 0,
        sent: counts.sent,
        send_dropped: %{}
      },
      bytes: %{received: counts.bytes_received, sent: counts.bytes_sent},
      inference: %{
        requests: counts.requests,
        answered: counts.answered,
        failed: nonzero(counts, :failed),
        abandoned: counts.abandoned,
        in_flight: counts.requests_in_flight,
        ticks_skipped: counts.skipped,
        buffered_bytes: buffered_bytes(counts)
      }
    }
  end

  @doc "Returns the body of `/metrics` for a reading, in Prometheus' text format."
  @spec exposition(map(), non_neg_integer() | nil) :: iodata()
  def exposition(counts, resident_bytes) do
    [
      counter("service_messages_received_total", "Complete data messages taken from sockets", counts.received),
      counter("service_messages_consumed_total", "Start messages", counts.consumed),
      counter("service_messages_delivered_total", "Frames answered by a partial", counts.delivered),
      counters("service_messages_dropped_total", "Messages without a partial", "reason", each(counts, :dropped)),
      gauge("service_messages_queued", "Frames that wait or are in flight", counts.waiting + counts.in_flight),
      counter("service_messages_malformed_total", "Text passed on that was no JSON object", 0),
      counter("service_messages_sent_total", "Partials and errors", counts.sent),
      counters("service_messages_send_dropped_total", "Messages not sent", "reason", []),
      counter("service_connections_accepted_total", "Connections upgraded and registered", counts.accepted),
      gauge("service_connections_open", "Connections open now", counts.open),
      counters("service_connections_closed_total", "Connections that ended", "reason", each(counts, :closed)),
      counters("service_connections_rejected_total", "Connections refused", "reason", each(counts, :rejected)),
      counter("service_bytes_received_total", "WebSocket bytes read from sockets", counts.bytes_received),
      counter("service_bytes_sent_total", "WebSocket bytes written to sockets", counts.bytes_sent),
      counter("service_inference_requests_total", "Requests begun", counts.requests),
      counter("service_inference_answered_total", "Requests whose answer became a partial", counts.answered),
      counters("service_inference_failed_total", "Requests whose frames got an error", "kind", each(counts, :failed)),
      counter("service_inference_abandoned_total", "Requests whose connection ended first", counts.abandoned),
      gauge("service_inference_in_flight", "Requests in flight now", counts.requests_in_flight),
      gauge("service_buffered_bytes", "Audio held, waiting or in flight", buffered_bytes(counts)),
      gauge(
        "service_inference_in_flight_per_connection_max",
        "The most requests that were ever in flight for one connection",
        counts.in_flight_per_connection_max
      ),
      counters("service_flush_ticks_total", "Flush ticks by what they found", "outcome", ticks(counts)),
      lateness(counts),
      if(resident_bytes, do: gauge("service_process_resident_bytes", "Memory of the process", resident_bytes), else: [])
    ]
  end

  defp buffered_bytes(counts), do: (counts.waiting + counts.in_flight) * 640
  defp ticks(counts), do: [flushed: counts.flushed, skipped: counts.skipped, empty: counts.empty]
  defp each(counts, field), do: for(reason <- Books.reasons(field), do: {reason, Map.fetch!(counts, {field, reason})})

  defp nonzero(counts, field),
    do: for({reason, count} when count > 0 <- each(counts, field), into: %{}, do: {reason, count})

  defp counter(name, help, value), do: [head(name, help, "counter"), "#{name} #{value}\n"]
  defp gauge(name, help, value), do: [head(name, help, "gauge"), "#{name} #{value}\n"]

  defp counters(name, help, label, values) do
    [head(name, help, "counter") | for({reason, value} <- values, do: ~s(#{name}{#{label}="#{reason}"} #{value}\n))]
  end

  defp lateness(counts) do
    name = "service_flush_lateness_seconds"

    {lines, total} =
      Enum.map_reduce(Enum.with_index(Books.lateness_bounds() ++ ["+Inf"]), 0, fn {bound, bucket}, below ->
        total = below + Map.fetch!(counts, {:lateness, bucket})
        {~s(#{name}_bucket{le="#{bound}"} #{total}\n), total}
      end)

    sum = "#{name}_sum #{counts.lateness_ns / 1.0e9}\n"
    [head(name, "How late flush ticks ran", "histogram"), lines, sum, "#{name}_count #{total}\n"]
  end

  defp head(name, help, type), do: "# HELP #{name} #{help}\n# TYPE #{name} #{type}\n"

  # Pages are 4 KiB on all machines for which Debian's Erlang is built here.
  defp resident_bytes do
    with {:ok, text} <- File.read("/proc/self/statm"), [_, pages | _] <- String.split(text) do
      String.to_integer(pages) * 4096
    else
      _ -> nil
    end
  end
end
