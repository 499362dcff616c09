defmodule ElixirCowboy.Books do
  @moduledoc """
  The gateway's counters, in one row of an ETS table. An update changes several counters atomically, so each read is
  consistent. Sessions make one update per read of their socket, not one per frame.
  """

  @lateness_bounds [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]
  @buckets length(@lateness_bounds)
  @failures [:timeout, :http_5xx, :http_429, :connection_reset, :parse_error]
  @dropped [:protocol, :overflow] ++ @failures ++ [:closed]
  @closed [:client, :eof, :protocol, :too_big, :slow_consumer, :shutdown, :error]
  @rejected [:full, :draining, :handshake]

  # waiting and in_flight count frames; both make up what is queued.
  @fields [
            :received,
            :consumed,
            :delivered,
            :sent,
            :waiting,
            :in_flight,
            :bytes_received,
            :bytes_sent,
            :accepted,
            :open
          ] ++
            [:requests, :answered, :abandoned, :requests_in_flight, :in_flight_per_connection_max] ++
            [:flushed, :skipped, :empty, :lateness_ns] ++
            for(kind <- @failures, do: {:failed, kind}) ++
            for(reason <- @dropped, do: {:dropped, reason}) ++
            for(reason <- @closed, do: {:closed, reason}) ++
            for(reason <- @rejected, do: {:rejected, reason}) ++
            for(bucket <- 0..@buckets, do: {:lateness, bucket})

  @typedoc "A counter; those with a reason are pairs of field and reason."
  @type field :: atom() | {atom(), atom() | non_neg_integer()}

  @doc "Creates the table, which the calling process owns."
  @spec new() :: :ok
  def new do
    :ets.new(__MODULE__, [:named_table, :public, write_concurrency: false])
    :ets.insert(__MODULE__, List.to_tuple([:books | List.duplicate(0, length(@fields))]))
    :ok
  end

  @doc "Adds to several counters atomically; amounts may be negative."
  @spec add([{field(), integer()}]) :: :ok
  def add(changes) do
    :ets.update_counter(__MODULE__, :books, for({field, count} <- changes, do: {position(field), count}))
    :ok
  end

  @doc "Counts a request that begins. A session's state can hold only one request."
  @spec begin_request(pos_integer()) :: :ok
  def begin_request(frames) do
    :ets.update_counter(__MODULE__, :books, [
      {position(:requests), 1},
      {position(:requests_in_flight), 1},
      {position(:waiting), -frames},
      {position(:in_flight), frames},
      # Limited to 1 by the threshold.
      {position(:in_flight_per_connection_max), 1, 1, 1}
    ])

    :ok
  end

  @doc "Returns a consistent reading of all counters."
  @spec read() :: %{field() => integer()}
  def read do
    [row] = :ets.lookup(__MODULE__, :books)
    @fields |> Enum.zip(tl(Tuple.to_list(row))) |> Map.new()
  end

  @doc "Returns the number of open connections."
  @spec open() :: non_neg_integer()
  def open, do: :ets.lookup_element(__MODULE__, :books, position(:open))

  @doc "Returns the histogram counter for a tick with this lateness, in nanoseconds."
  @spec lateness_bucket(non_neg_integer()) :: {:lateness, non_neg_integer()}
  def lateness_bucket(lateness), do: {:lateness, bucket(lateness)}

  @doc "Returns the upper bounds of the lateness buckets, in seconds. One more bucket counts ticks beyond the last."
  @spec lateness_bounds() :: [float()]
  def lateness_bounds, do: @lateness_bounds

  @doc "Returns all reasons of a field that has reasons."
  @spec reasons(atom()) :: [atom()]
  def reasons(:failed), do: @failures
  def reasons(:dropped), do: @dropped
  def reasons(:closed), do: @closed
  def reasons(:rejected), do: @rejected

  for {bound, bucket} <- Enum.with_index(@lateness_bounds) do
    defp bucket(lateness) when lateness <= unquote(round(bound * 1_000_000_000)), do: unquote(bucket)
  end

  defp bucket(_lateness), do: @buckets

  # The row's first element is its key.
  for {field, index} <- Enum.with_index(@fields, 2) do
    defp position(unquote(field)), do: unquote(index)
  end
end
