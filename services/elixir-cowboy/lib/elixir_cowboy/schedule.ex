defmodule ElixirCowboy.Schedule do
  @moduledoc """
  When a session's flush ticks are due, and when its socket is read in between. No I/O; all times are in
  nanoseconds.

  A look is a visit of the socket. Looks divide each interval into equal parts, and the last look of an interval is
  a tick. The schedule is absolute: it doesn't drift, and lateness doesn't accumulate.
  """

  # Longest time between two looks. The contract allows 500 ms for the reply to a ping; the rest is a margin.
  @pause 400_000_000

  @enforce_keys [:base, :interval, :looks, :next]
  defstruct @enforce_keys

  @typedoc "`next` is the number of the look that is waited for: look 0 is at `base`, and each `looks`-th one is a tick."
  @type t :: %__MODULE__{base: integer(), interval: pos_integer(), looks: pos_integer(), next: integer()}

  @doc "Creates the schedule of a session that started at `now`, shifted by `offset`."
  @spec new(integer(), non_neg_integer(), pos_integer()) :: t()
  def new(now, offset, interval) do
    base = now + offset
    looks = div(interval + @pause - 1, @pause)
    %__MODULE__{base: base, interval: interval, looks: looks, next: first_after(now, base, interval, looks)}
  end

  @doc "Returns when the next look is due."
  @spec due(t()) :: integer()
  def due(%__MODULE__{next: next} = schedule), do: time(schedule, next)

  @doc """
  Advances the schedule at `now`, when the next look is due. Returns whether a tick was due since the last look, its
  lateness, and the new schedule. Several missed ticks count as one, with the lateness of the first.
  """
  @spec look(t(), integer()) :: {{:tick, non_neg_integer()} | :no_tick, t()}
  def look(%__MODULE__{base: base, interval: interval, looks: looks, next: next} = schedule, now) do
    tick = max(looks, looks * -Integer.floor_div(-next, looks))
    late = now - time(schedule, tick)
    following = max(next + 1, first_after(now, base, interval, looks))
    {if(late >= 0, do: {:tick, late}, else: :no_tick), %{schedule | next: following}}
  end

  defp time(%__MODULE__{base: base, interval: interval, looks: looks}, number) do
    # Divide last: a rounded part of an interval would drift. Round up: rounded down, a look could be due now.
    base - Integer.floor_div(-number * interval, looks)
  end

  defp first_after(now, base, interval, looks), do: Integer.floor_div((now - base) * looks, interval) + 1
end
