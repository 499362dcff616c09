defmodule ElixirCowboy.Backlog do
  @moduledoc """
  The audio of one session that waits for the next tick, and the record of frames that were dropped because too many
  waited. No I/O; all times are in nanoseconds.

  Frames stay in the binaries that Cowboy unmasked until they become the body of a request; they are not copied.
  """

  # reads: newest first, each {time, number of frames, frames newest first}; covered: the last frame that was taken or reported
  defstruct reads: [], count: 0, covered: 0, dropped: nil

  @typedoc "A run of consecutive frames, and when the first and the last of them were read."
  @type span :: %{
          oldest: pos_integer(),
          newest: pos_integer(),
          frames: pos_integer(),
          oldest_at: integer(),
          newest_at: integer()
        }

  @type t :: %__MODULE__{
          reads: [{integer(), pos_integer(), [binary()]}],
          count: non_neg_integer(),
          covered: non_neg_integer(),
          dropped: nil | {pos_integer(), integer(), integer()}
        }

  @doc "Adds frames, newest first, that were read at `now`. Drops the oldest beyond `limit` and returns how many."
  @spec push(t(), [binary()], pos_integer(), integer(), pos_integer()) :: {non_neg_integer(), t()}
  def push(%__MODULE__{reads: reads, count: count} = backlog, frames, added, now, limit) do
    backlog = %{backlog | reads: [{now, added, frames} | reads], count: count + added}
    excess = max(0, count + added - limit)
    {excess, if(excess > 0, do: drop(backlog, excess), else: backlog)}
  end

  @doc "Takes all waiting frames as the body of a request, with their span. Take the dropped frames first."
  @spec take(t()) :: {binary(), span(), t()}
  def take(%__MODULE__{reads: [{newest_at, _, _} | _] = reads, count: count, covered: covered, dropped: nil}) do
    {oldest_at, frames} =
      Enum.reduce(reads, {newest_at, []}, fn {at, _, frames}, {_, later} -> {at, :lists.reverse(frames, later)} end)

    {IO.iodata_to_binary(frames), span(covered, count, oldest_at, newest_at), %__MODULE__{covered: covered + count}}
  end

  @doc "Takes the record of dropped frames that must be reported; `nil` if there are none."
  @spec take_dropped(t()) :: {span() | nil, t()}
  def take_dropped(%__MODULE__{dropped: nil} = backlog), do: {nil, backlog}

  def take_dropped(%__MODULE__{dropped: {count, oldest_at, newest_at}, covered: covered} = backlog) do
    {span(covered, count, oldest_at, newest_at), %{backlog | dropped: nil, covered: covered + count}}
  end

  defp span(covered, count, oldest_at, newest_at) do
    %{oldest: covered + 1, newest: covered + count, frames: count, oldest_at: oldest_at, newest_at: newest_at}
  end

  defp drop(%__MODULE__{reads: reads, count: count, dropped: dropped} = backlog, excess) do
    {reads, oldest_at, newest_at} = drop_reads(Enum.reverse(reads), excess, nil)

    dropped =
      case dropped do
        nil -> {excess, oldest_at, newest_at}
        {before, first_at, _} -> {before + excess, first_at, newest_at}
      end

    %{backlog | reads: Enum.reverse(reads), count: count - excess, dropped: dropped}
  end

  # Oldest first.
  defp drop_reads([{at, count, _} | reads], excess, oldest_at) when count <= excess do
    case excess - count do
      0 -> {reads, oldest_at || at, at}
      rest -> drop_reads(reads, rest, oldest_at || at)
    end
  end

  defp drop_reads([{at, count, frames} | reads], excess, oldest_at) do
    {[{at, count - excess, Enum.take(frames, count - excess)} | reads], oldest_at || at, at}
  end
end
