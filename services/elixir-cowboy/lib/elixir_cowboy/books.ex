defmodule ElixirCowboy.Books do
  @moduledoc """
  Everything that the gateway counts, in one row of a table: an entry changes several numbers at once, and a reading sees
  all of an entry or nothing of it. Sessions make one entry per read of their socket, not one per frame.
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

  @typedoc "What is counted; those with a reason are pairs."
  @type field :: atom() | {atom(), atom() | non_neg_integer()}

  @doc "Makes the table. It belongs to the calling process."
  @spec new() :: :ok
  def new do
    :ets.new(__MODULE__, [:named_table, :public, write_concurrency: false])
    :ets.insert(__MODULE__, List.to_tuple([:books | List.duplicate(0, length(@fields))]))
    :ok
  end

  @doc "Makes one entry: all of these numbers grow (or shrink) at once."
  @spec add([{field(), integer()}]) :: :ok
  def add(entry) do
    :ets.update_counter(__MODULE__, :books, for({field, count} <- entry, do: {position(field), count}))
    :ok
  end

  @doc "Notes that a request of a session began. No session has two: there is no place for a second one in its state."
  @spec begin_request(pos_integer()) :: :ok
  def begin_request(frames) do
    :ets.update_counter(__MODULE__, :books, [
      {position(:requests), 1},
      {position(:requests_in_flight), 1},
      {position(:waiting), -frames},
      {position(:in_flight), frames},
      # Grows to 1 and no further.
      {position(:in_flight_per_connection_max), 1, 1, 1}
    ])

    :ok
  end

  @doc "One consistent reading."
  @spec read() :: %{field() => integer()}
  def read do
    [row] = :ets.lookup(__MODULE__, :books)
    @fields |> Enum.zip(tl(Tuple.to_list(row))) |> Map.new()
  end

  @doc "Connections open now."
  @spec open() :: non_neg_integer()
  def open, do: :ets.lookup_element(__MODULE__, :books, position(:open))

  @doc "The counter for a tick that ran so late, in nanoseconds."
  @spec lateness_bucket(non_neg_integer()) :: {:lateness, non_neg_integer()}
  def lateness_bucket(lateness), do: {:lateness, bucket(lateness)}

  @doc "Upper bounds of the buckets of lateness, in seconds; one bucket more has what is beyond."
  @spec lateness_bounds() :: [float()]
  def lateness_bounds, do: @lateness_bounds

  @doc "All reasons of a field that has reasons."
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
