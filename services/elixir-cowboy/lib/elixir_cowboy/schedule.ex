defmodule ElixirCowboy.Schedule do
  @moduledoc """
  When a session's flush ticks are due, and when its socket is looked at in between. Pure; all times in nanoseconds.

  Looks divide each interval into equal parts, and every last one is a tick. They lie at multiples after a fixed time:
  nothing drifts, and lateness doesn't add up.
  """

  # Longest time between two looks: pings are answered within 500 ms, and that leaves room for lateness.
  @pause 400_000_000

  @enforce_keys [:base, :interval, :looks, :next]
  defstruct @enforce_keys

  @typedoc "`next` is the number of the look that is waited for: look 0 is at `base`, and each `looks`-th one is a tick."
  @type t :: %__MODULE__{base: integer(), interval: pos_integer(), looks: pos_integer(), next: integer()}

  @doc "The schedule of a session that started at `now`, shifted by `offset`."
  @spec new(integer(), non_neg_integer(), pos_integer()) :: t()
  def new(now, offset, interval) do
    base = now + offset
    looks = div(interval + @pause - 1, @pause)
    %__MODULE__{base: base, interval: interval, looks: looks, next: first_after(now, base, interval, looks)}
  end

  @doc "When the next look is due."
  @spec due(t()) :: integer()
  def due(%__MODULE__{next: next} = schedule), do: time(schedule, next)

  @doc """
  It is `now`, and the next look is due: whether a tick is among what was due since the last look, how late it is, and the
  schedule of what comes. Ticks that were missed are one tick, as late as the first of them.
  """
  @spec look(t(), integer()) :: {{:tick, non_neg_integer()} | :no_tick, t()}
  def look(%__MODULE__{base: base, interval: interval, looks: looks, next: next} = schedule, now) do
    tick = max(looks, looks * -Integer.floor_div(-next, looks))
    late = now - time(schedule, tick)
    following = max(next + 1, first_after(now, base, interval, looks))
    {if(late >= 0, do: {:tick, late}, else: :no_tick), %{schedule | next: following}}
  end

  defp time(%__MODULE__{base: base, interval: interval, looks: looks}, number) do
    # Divide last: a rounded part of an interval would drift.
    base + Integer.floor_div(number * interval, looks)
  end

  defp first_after(now, base, interval, looks), do: Integer.floor_div((now - base) * looks, interval) + 1
end
