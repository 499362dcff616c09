defmodule ElixirCowboy.BacklogTest do
  use ExUnit.Case, async: true

  alias ElixirCowboy.Backlog

  # Frames that contain their numbers, in the order in which a session passes them: newest first.
  defp push(backlog, numbers, at, limit) do
    frames = for number <- Enum.reverse(numbers), do: <<number::16>>
    Backlog.push(backlog, frames, length(frames), at, limit)
  end

  defp numbers(body), do: for(<<number::16 <- body>>, do: number)

  test "a batch has all frames in their order, and when the first and the last were read" do
    {0, backlog} = push(%Backlog{}, [1, 2, 3], 100, 10)
    {0, backlog} = push(backlog, [4], 200, 10)
    {body, span, backlog} = Backlog.take(backlog)
    assert numbers(body) == [1, 2, 3, 4]
    assert span == %{oldest: 1, newest: 4, frames: 4, oldest_at: 100, newest_at: 200}
    assert backlog.count == 0
  end

  test "a span starts after the last batch" do
    {0, backlog} = push(%Backlog{}, [1], 1, 10)
    {_, _, backlog} = Backlog.take(backlog)
    {0, backlog} = push(backlog, [2, 3], 2, 10)
    assert {_, %{oldest: 2, newest: 3}, _} = Backlog.take(backlog)
  end

  test "the oldest are dropped beyond the limit, and reported once" do
    {0, backlog} = push(%Backlog{}, [1, 2], 10, 4)
    {1, backlog} = push(backlog, [3, 4, 5], 20, 4)
    {3, backlog} = push(backlog, [6, 7, 8], 30, 4)
    {span, backlog} = Backlog.take_dropped(backlog)
    assert span == %{oldest: 1, newest: 4, frames: 4, oldest_at: 10, newest_at: 20}
    assert {nil, ^backlog} = Backlog.take_dropped(backlog)
    assert {body, %{oldest: 5, newest: 8, oldest_at: 20, newest_at: 30}, _} = Backlog.take(backlog)
    assert numbers(body) == [5, 6, 7, 8]
  end

  test "with random input, spans are contiguous and cover every frame once" do
    for seed <- 1..100 do
      :rand.seed(:exsss, seed)
      limit = Enum.random(1..12)

      {backlog, sent, covered} =
        Enum.reduce(1..60, {%Backlog{}, 0, 0}, fn at, {backlog, sent, covered} ->
          added = Enum.random(1..9)
          {_, backlog} = push(backlog, Enum.to_list((sent + 1)..(sent + added)), at, limit)
          assert backlog.count <= limit, "seed #{seed}"
          {backlog, covered} = if Enum.random(1..3) == 1, do: drain(backlog, covered), else: {backlog, covered}
          {backlog, sent + added, covered}
        end)

      assert {_, ^sent} = drain(backlog, covered), "seed #{seed}"
    end
  end

  defp drain(backlog, covered) do
    {span, backlog} = Backlog.take_dropped(backlog)
    if span, do: assert(span.oldest == covered + 1)
    covered = if span, do: span.newest, else: covered

    if backlog.count > 0 do
      {body, span, backlog} = Backlog.take(backlog)
      assert span.oldest == covered + 1
      assert numbers(body) == Enum.to_list(span.oldest..span.newest)
      {backlog, span.newest}
    else
      {backlog, covered}
    end
  end
end
