defmodule ElixirCowboy.LinkTest do
  use ExUnit.Case, async: true

  alias ElixirCowboy.{Config, Link}

  @settings IO.iodata_to_binary(:cow_http2.settings(%{}))

  defp link do
    {:ok, config} = Config.parse([], %{})
    {link, [send: preface]} = Link.new(:no_socket, config)
    assert "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" <> _ = IO.iodata_to_binary(preface)
    link
  end

  defp connected do
    {link, actions} = Link.data(link(), @settings <> :cow_http2.settings_ack())
    assert {:send, :cow_http2.settings_ack()} in actions
    link
  end

  defp batch(bytes \\ 640),
    do: %{ref: make_ref(), from: self(), body: :binary.copy("x", bytes), deadline: 0, retried: false}

  defp response(stream, status, body) do
    {block, _} = :cow_hpack.encode([{":status", Integer.to_string(status)}])
    IO.iodata_to_binary([:cow_http2.headers(stream, :nofin, block), :cow_http2.data(stream, :fin, body)])
  end

  defp frames(data, found \\ []) do
    case :cow_http2.parse(data, 16_384) do
      {:ok, frame, rest} -> frames(rest, [frame | found])
      :more when data == "" -> Enum.reverse(found)
    end
  end

  test "a request has its headers, and its body in frames that the other side takes" do
    {_, [send: sent]} = Link.request(connected(), batch(32_000))
    [{:headers, 1, :nofin, :head_fin, block} | data] = frames(IO.iodata_to_binary(sent))
    {headers, _} = :cow_hpack.decode(block)
    assert {":method", "POST"} in headers and {":path", "/infer"} in headers
    assert {"x-cpu-passes", "4"} in headers and {"content-length", "32000"} in headers
    assert Enum.sum(for {:data, 1, _, part} <- data, do: byte_size(part)) == 32_000
    assert {:data, 1, :fin, _} = List.last(data)
  end

  test "an answer goes to the request of its stream, however its bytes are cut" do
    {one, two} = {batch(), batch()}
    {link, _} = Link.request(connected(), one)
    {link, _} = Link.request(link, two)
    bytes = response(3, 200, "second") <> response(1, 503, "first")

    {_, answers} =
      Enum.reduce(:binary.bin_to_list(bytes), {link, []}, fn byte, {link, answers} ->
        {link, actions} = Link.data(link, <<byte>>)
        {link, answers ++ for({:answer, request, status, body} <- actions, do: {request.ref, status, body})}
      end)

    assert answers == [{two.ref, 200, "second"}, {one.ref, 503, "first"}]
  end

  test "an answer to a request that was given up is nobody's, and hurts no other" do
    requests = for _ <- 1..30, do: batch()
    link = Enum.reduce(requests, connected(), fn request, link -> elem(Link.request(link, request), 0) end)
    link = Enum.reduce(tl(requests), link, fn request, link -> elem(Link.cancel(link, request.ref), 0) end)
    late = for number <- 1..29, into: "", do: response(number * 2 + 1, 200, "late")
    {link, actions} = Link.data(link, late <> response(1, 200, "right"))
    first = hd(requests)
    assert [{:answer, ^first, 200, "right"}] = for({:answer, _, _, _} = answer <- actions, do: answer)
    assert link.streams == %{}
  end

  test "what the inference doesn't take at once waits for its turn" do
    {link, _} = Link.data(link(), IO.iodata_to_binary(:cow_http2.settings(%{max_concurrent_streams: 1})))
    {link, [send: _]} = Link.request(link, batch())
    {link, []} = Link.request(link, waiting = batch())
    {link, actions} = Link.data(link, response(1, 200, "done"))
    assert Enum.any?(actions, &match?({:send, _}, &1))
    assert Map.has_key?(link.numbers, waiting.ref)
  end

  test "who speaks no HTTP/2 has sent an answer that can't be read" do
    {_, actions} = Link.data(link(), "HTTP/1.1 400 Bad Request\r\n\r\n")
    assert {:close, :parse_error, _} = List.last(actions)
  end

  test "a kept-alive connection that was closed is replaced once" do
    {link, _} = Link.request(connected(), batch())
    {link, _} = Link.data(link, response(1, 200, "done"))
    {link, _} = Link.request(link, request = batch())
    assert [{:again, ^request}] = Link.lost(link, :connection_reset, "closed")

    {link, _} = Link.request(link, again = %{batch() | retried: true})
    assert {:fail, again, :connection_reset, "closed"} in Link.lost(link, :connection_reset, "closed")
  end

  test "a request is not sent again once a byte came, or on a new connection" do
    {link, _} = Link.request(connected(), request = batch())
    assert [{:fail, ^request, :connection_reset, _}] = Link.lost(link, :connection_reset, "closed")
    {link, _} = Link.data(link, response(1, 200, "done"))
    {link, _} = Link.request(link, request = batch())
    {link, _} = Link.data(link, binary_part(response(3, 200, "half"), 0, 20))
    assert [{:fail, ^request, :connection_reset, _}] = Link.lost(link, :connection_reset, "closed")
  end

  test "requests that a server going away has not read are sent again elsewhere" do
    {link, _} = Link.request(connected(), first = batch())
    {link, _} = Link.request(link, second = batch())
    {link, actions} = Link.data(link, IO.iodata_to_binary(:cow_http2.goaway(1, :no_error, "")))
    assert :retire in actions and {:again, second} in actions
    {_, actions} = Link.data(link, response(1, 200, "last"))
    assert [{:answer, ^first, 200, "last"}, {:close, _, _}] = actions
  end

  test "an answer without end is given up as one that can't be read" do
    {link, _} = Link.request(connected(), request = batch())
    {block, _} = :cow_hpack.encode([{":status", "200"}])
    {link, _} = Link.data(link, IO.iodata_to_binary(:cow_http2.headers(1, :nofin, block)))
    part = IO.iodata_to_binary(:cow_http2.data(1, :nofin, :binary.copy("x", 16_000)))

    {_, actions} =
      Enum.reduce(1..5, {link, []}, fn _, {link, before} ->
        {link, actions} = Link.data(link, part)
        {link, before ++ actions}
      end)

    assert {:answer, request, 200, ""} in actions
  end
end
