defmodule ElixirCowboy.ScheduleTest do
  use ExUnit.Case, async: true

  alias ElixirCowboy.Schedule

  @ms 1_000_000

  # All ticks up to `until`, of a schedule that is evaluated exactly at each due time.
  defp ticks(schedule, until), do: ticks(schedule, until, [])

  defp ticks(schedule, until, found) do
    due = Schedule.due(schedule)

    case due <= until and Schedule.look(schedule, due) do
      false -> Enum.reverse(found)
      {{:tick, lateness}, schedule} -> ticks(schedule, until, [{due, lateness} | found])
      {:no_tick, schedule} -> ticks(schedule, until, found)
    end
  end

  test "ticks are due at start, offset and multiples of the interval, also where time is negative" do
    for start <- [0, 17, -576_460_751_000_000_001], offset <- [0, 1, 999 * @ms] do
      expected = for k <- 1..5, do: {start + offset + k * 1000 * @ms, 0}
      assert ticks(Schedule.new(start, offset, 1000 * @ms), start + offset + 5000 * @ms) == expected
    end
  end

  test "an interval that no part divides evenly does not drift" do
    interval = 1001 * @ms
    assert List.last(ticks(Schedule.new(0, 0, interval), 1000 * interval)) == {1000 * interval, 0}
  end

  test "no two looks are further apart than pings may wait" do
    for interval <- [10, 399, 400, 401, 1000, 60_000], offset <- [0, 60_000] do
      schedule = Schedule.new(0, offset * @ms, interval * @ms)

      Enum.reduce(1..50, {schedule, 0}, fn _, {schedule, before} ->
        due = Schedule.due(schedule)
        assert due - before <= 401 * @ms
        {_, schedule} = Schedule.look(schedule, due)
        {schedule, due}
      end)
    end
  end

  test "a stall is one late tick, and moves no later one" do
    schedule = Schedule.new(0, 0, 100 * @ms)
    assert Schedule.due(schedule) == 100 * @ms
    assert {{:tick, late}, schedule} = Schedule.look(schedule, 457 * @ms)
    assert late == 357 * @ms
    assert Schedule.due(schedule) == 500 * @ms
    assert {{:tick, 0}, _} = Schedule.look(schedule, 500 * @ms)
  end

  test "a tick that became due during a late look is run" do
    schedule = Schedule.new(0, 0, 1000 * @ms)
    assert Schedule.due(schedule) < 1000 * @ms
    assert {{:tick, 5_000_000}, schedule} = Schedule.look(schedule, 1005 * @ms)
    assert Schedule.due(schedule) > 1005 * @ms
  end

  test "a look between ticks at a fraction of a nanosecond is due after it" do
    schedule = Schedule.new(0, 0, 1000 * @ms)
    {_, schedule} = Schedule.look(schedule, 666_666_666)
    assert Schedule.due(schedule) == 666_666_667
  end

  test "the next look is never in the past" do
    for _ <- 1..500 do
      interval = Enum.random(10..2000) * @ms
      schedule = Schedule.new(Enum.random(-1000..1000) * @ms, Enum.random(0..1000) * @ms, interval)
      now = Schedule.due(schedule) + Enum.random(0..5000) * @ms
      {_, schedule} = Schedule.look(schedule, now)
      assert Schedule.due(schedule) > now
      assert Schedule.due(schedule) <= now + interval
    end
  end
end
