defmodule ElixirCowboy.SessionsTest do
  # Starts the whole gateway in the test's runtime, with the address of an inference that doesn't exist.
  use ExUnit.Case, async: false

  alias ElixirCowboy.{Application, Config, Golden}

  @patience_ms 10_000

  setup_all do
    {:ok, unused} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, nowhere} = :inet.port(unused)
    :ok = :gen_tcp.close(unused)

    arguments = ["--port=0", "--flush-interval-ms=50", "--inference-url=http://127.0.0.1:#{nowhere}"]
    {:ok, config} = Config.parse(arguments, %{})
    Elixir.Application.put_env(:elixir_cowboy, :config, config)
    {:ok, _} = Elixir.Application.ensure_all_started(:elixir_cowboy)
    on_exit(fn -> Elixir.Application.stop(:elixir_cowboy) end)
  end

  test "golden client messages are handled" do
    for message <- Golden.messages("client") do
      {message["name"], Task.async(fn -> expect(message) end)}
    end
    |> Enum.each(fn {name, task} -> assert {name, Task.yield(task, @patience_ms)} == {name, {:ok, :ok}} end)
  end

  test "a request that is not an upgrade of version 13 gets 426, another method 405, another path 404" do
    for {request, status} <- [
          {"GET /ws/stt HTTP/1.1\r\nhost: a\r\n\r\n", "426"},
          {String.replace(handshake(), "version: 13", "version: 12"), "426"},
          {"POST /ws/stt HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", "405"},
          {"GET /ws HTTP/1.1\r\nhost: a\r\n\r\n", "404"},
          {"GET /health HTTP/1.1\r\nhost: a\r\n\r\n", "200"}
        ] do
      socket = connect()
      :ok = :gen_tcp.send(socket, request)
      assert {:ok, <<"HTTP/1.1 ", ^status::binary-size(3), _::binary>>} = :gen_tcp.recv(socket, 0, @patience_ms)
    end
  end

  test "a batch that finds no inference is reported, and the session goes on" do
    {socket, rest} = upgrade()
    :ok = :gen_tcp.send(socket, [frame({:text, ~s({"type":"start"})}), frame({:binary, :binary.copy(<<0>>, 640)})])
    {{1, text}, rest} = receive_frame(socket, rest)
    assert %{"kind" => "connection_reset", "frames" => 1, "oldest_frame_seq" => 1} = JSON.decode!(text)
    :ok = :gen_tcp.send(socket, frame({:binary, :binary.copy(<<0>>, 640)}))
    {{1, text}, _} = receive_frame(socket, rest)
    assert %{"kind" => "connection_reset", "oldest_frame_seq" => 2} = JSON.decode!(text)
  end

  # Sends one golden message and checks the gateway's reaction.
  defp expect(%{"state" => state, "means" => means} = message) do
    {socket, rest} = upgrade()
    if state == "started", do: :ok = :gen_tcp.send(socket, frame({:text, ~s({"type":"start"})}))
    # The gateway may have closed the connection before all bytes were sent.
    _ = :gen_tcp.send(socket, bytes(message))
    expect(means, message, socket, rest)
  end

  defp expect("close", message, socket, rest) do
    {{8, <<code::16, reason::binary>>}, _} = receive_frame(socket, rest)
    assert {message["name"], code} == {message["name"], message["code"]}
    if message["reason"], do: assert({message["name"], reason} == {message["name"], message["reason"]})
    assert {:error, :closed} = :gen_tcp.recv(socket, 0, @patience_ms)
    :ok
  end

  defp expect("pong", message, socket, rest) do
    {{10, payload}, _} = receive_frame(socket, rest)
    assert {message["name"], Base.encode16(payload, case: :lower)} == {message["name"], message["hex"]}
    :ok
  end

  # For a message without a reply: the session still exists, and replies to a ping (or to the frame, with an error).
  defp expect(_means, message, socket, rest) do
    :ok = :gen_tcp.send(socket, frame({:ping, "still there?"}))
    {{opcode, _}, _} = receive_frame(socket, rest)
    assert {message["name"], opcode in [1, 10]} == {message["name"], true}
    :ok
  end

  # Cowboy adds up the sizes of fragments when their bytes arrive, not from their headers (README.md, "Decisions").
  defp bytes(%{"name" => "fragments beyond 64 KiB", "wire" => hex}),
    do: Base.decode16!(hex, case: :lower) <> :binary.copy(<<0>>, 65_530)

  defp bytes(%{"wire" => hex}), do: Base.decode16!(hex, case: :lower)
  defp bytes(%{"text" => text}), do: frame({:text, text})
  defp bytes(%{"binary" => hex}), do: frame({:binary, Base.decode16!(hex, case: :lower)})
  defp bytes(%{"zeros" => count}), do: frame({:binary, :binary.copy(<<0>>, count)})

  defp frame(frame), do: :cow_ws.masked_frame(frame, %{})

  defp connect do
    port = Application.address(:clients) |> String.split(":") |> List.last() |> String.to_integer()
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false])
    socket
  end

  defp handshake do
    "GET /ws/stt HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n" <>
      "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
  end

  defp upgrade do
    socket = connect()
    :ok = :gen_tcp.send(socket, handshake())
    {socket, head(socket, "")}
  end

  defp head(socket, data) do
    case String.split(data, "\r\n\r\n", parts: 2) do
      ["HTTP/1.1 101" <> _, rest] -> rest
      _ -> head(socket, data <> receive_bytes(socket))
    end
  end

  defp receive_frame(
         _socket,
         <<1::1, 0::3, opcode::4, 0::1, 126::7, length::16, payload::binary-size(length), rest::binary>>
       ),
       do: {{opcode, payload}, rest}

  defp receive_frame(_socket, <<1::1, 0::3, opcode::4, 0::1, length::7, payload::binary-size(length), rest::binary>>)
       when length < 126,
       do: {{opcode, payload}, rest}

  defp receive_frame(socket, data), do: receive_frame(socket, data <> receive_bytes(socket))

  defp receive_bytes(socket) do
    {:ok, data} = :gen_tcp.recv(socket, 0, @patience_ms)
    data
  end
end
