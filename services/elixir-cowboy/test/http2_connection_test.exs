defmodule ElixirCowboy.Http2ConnectionTest do
  use ExUnit.Case, async: true

  alias ElixirCowboy.{Config, Http2Connection}

  @settings IO.iodata_to_binary(:cow_http2.settings(%{}))

  defp connection do
    {:ok, config} = Config.parse([], %{})
    {connection, [send: preface]} = Http2Connection.new(:no_socket, config)
    assert "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" <> _ = IO.iodata_to_binary(preface)
    connection
  end

  defp connected do
    {connection, actions} = Http2Connection.data(connection(), @settings <> :cow_http2.settings_ack())
    assert {:send, :cow_http2.settings_ack()} in actions
    connection
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

  test "a request has its headers, and its body in frames that the peer accepts" do
    {_, [send: sent]} = Http2Connection.request(connected(), batch(32_000))
    [{:headers, 1, :nofin, :head_fin, block} | data] = frames(IO.iodata_to_binary(sent))
    {headers, _} = :cow_hpack.decode(block)
    assert {":method", "POST"} in headers and {":path", "/infer"} in headers
    assert {"x-cpu-passes", "4"} in headers and {"content-length", "32000"} in headers
    assert Enum.sum(for {:data, 1, _, part} <- data, do: byte_size(part)) == 32_000
    assert {:data, 1, :fin, _} = List.last(data)
  end

  test "a response is matched with the request of its stream for any size of reads" do
    {one, two} = {batch(), batch()}
    {connection, _} = Http2Connection.request(connected(), one)
    {connection, _} = Http2Connection.request(connection, two)
    bytes = response(3, 200, "second") <> response(1, 503, "first")

    {_, answers} =
      Enum.reduce(:binary.bin_to_list(bytes), {connection, []}, fn byte, {connection, answers} ->
        {connection, actions} = Http2Connection.data(connection, <<byte>>)
        {connection, answers ++ for({:answer, request, status, body} <- actions, do: {request.ref, status, body})}
      end)

    assert answers == [{two.ref, 200, "second"}, {one.ref, 503, "first"}]
  end

  test "the response to a cancelled request is ignored, and other requests continue" do
    requests = for _ <- 1..30, do: batch()

    connection =
      Enum.reduce(requests, connected(), fn request, connection ->
        elem(Http2Connection.request(connection, request), 0)
      end)

    connection =
      Enum.reduce(tl(requests), connection, fn request, connection ->
        elem(Http2Connection.cancel(connection, request.ref), 0)
      end)

    late = for number <- 1..29, into: "", do: response(number * 2 + 1, 200, "late")
    {connection, actions} = Http2Connection.data(connection, late <> response(1, 200, "right"))
    first = hd(requests)
    assert [{:answer, ^first, 200, "right"}] = for({:answer, _, _, _} = answer <- actions, do: answer)
    assert connection.streams == %{}
  end

  test "a request beyond the limit of streams is sent after another has ended" do
    {connection, _} =
      Http2Connection.data(connection(), IO.iodata_to_binary(:cow_http2.settings(%{max_concurrent_streams: 1})))

    {connection, [send: _]} = Http2Connection.request(connection, batch())
    {connection, []} = Http2Connection.request(connection, waiting = batch())
    {connection, actions} = Http2Connection.data(connection, response(1, 200, "done"))
    assert Enum.any?(actions, &match?({:send, _}, &1))
    assert Map.has_key?(connection.numbers, waiting.ref)
  end

  test "a peer without HTTP/2 is a parse error" do
    {_, actions} = Http2Connection.data(connection(), "HTTP/1.1 400 Bad Request\r\n\r\n")
    assert {:close, :parse_error, _} = List.last(actions)
  end

  test "a kept-alive connection that was closed is replaced once" do
    {connection, _} = Http2Connection.request(connected(), batch())
    {connection, _} = Http2Connection.data(connection, response(1, 200, "done"))
    {connection, _} = Http2Connection.request(connection, request = batch())
    assert [{:retry, ^request}] = Http2Connection.closed(connection, :connection_reset, "closed")

    {connection, _} = Http2Connection.request(connection, retry = %{batch() | retried: true})

    assert {:fail, retry, :connection_reset, "closed"} in Http2Connection.closed(
             connection,
             :connection_reset,
             "closed"
           )
  end

  test "a request is not retried after a response byte, or on a new connection" do
    {connection, _} = Http2Connection.request(connected(), request = batch())
    assert [{:fail, ^request, :connection_reset, _}] = Http2Connection.closed(connection, :connection_reset, "closed")
    {connection, _} = Http2Connection.data(connection, response(1, 200, "done"))
    {connection, _} = Http2Connection.request(connection, request = batch())
    {connection, _} = Http2Connection.data(connection, binary_part(response(3, 200, "half"), 0, 20))
    assert [{:fail, ^request, :connection_reset, _}] = Http2Connection.closed(connection, :connection_reset, "closed")
  end

  test "requests that GOAWAY names as unprocessed are retried on another connection" do
    {connection, _} = Http2Connection.request(connected(), first = batch())
    {connection, _} = Http2Connection.request(connection, second = batch())
    {connection, actions} = Http2Connection.data(connection, IO.iodata_to_binary(:cow_http2.goaway(1, :no_error, "")))
    assert :retire in actions and {:retry, second} in actions
    {_, actions} = Http2Connection.data(connection, response(1, 200, "last"))
    assert [{:answer, ^first, 200, "last"}, {:close, _, _}] = actions
  end

  test "a response that is too long is cancelled and is a parse error" do
    {connection, _} = Http2Connection.request(connected(), request = batch())
    {block, _} = :cow_hpack.encode([{":status", "200"}])
    {connection, _} = Http2Connection.data(connection, IO.iodata_to_binary(:cow_http2.headers(1, :nofin, block)))
    part = IO.iodata_to_binary(:cow_http2.data(1, :nofin, :binary.copy("x", 16_000)))

    {_, actions} =
      Enum.reduce(1..5, {connection, []}, fn _, {connection, before} ->
        {connection, actions} = Http2Connection.data(connection, part)
        {connection, before ++ actions}
      end)

    assert {:answer, request, 200, ""} in actions
  end
end
