defmodule ElixirCowboy.Http2Connection do
  @moduledoc """
  One HTTP/2 connection to the inference, without its socket: inbound bytes result in actions, which the client
  executes. cowlib keeps the protocol's state (`cow_http2_machine`); this module matches responses with requests.
  """

  alias ElixirCowboy.Config

  # Largest response body. A regular one has some 150 bytes; the contract requires at least 16 KiB.
  @max_answer_bytes 65_536
  # The connection's window is so large that responses never wait for it.
  @window_bytes 16_777_216
  @max_frame_bytes 16_384

  # streams: by number, each {request, status, body so far, bytes when it was sent}; queue: beyond the inference's limit
  defstruct [:machine, :headers, :pseudo, :socket, buffer: "", streams: %{}, numbers: %{}, queue: :queue.new()] ++
              [limit: 100, bytes: 0, answered: 0, heard: false, retired: false]

  @type t :: %__MODULE__{}
  @type action ::
          {:send, iodata()}
          | {:answer, map(), pos_integer(), binary()}
          | {:fail, map(), atom(), String.t()}
          | {:retry, map()}
          | {:close, atom(), String.t()}
          | {:forget_later, pos_integer()}
          | :retire

  @doc "Creates the state of a new connection, with the bytes that it sends first."
  @spec new(port(), Config.t()) :: {t(), [action()]}
  def new(socket, config) do
    options = %{
      preface_timeout: :infinity,
      settings_timeout: :infinity,
      initial_connection_window_size: @window_bytes,
      initial_stream_window_size: @max_answer_bytes * 2,
      max_frame_size_received: @max_frame_bytes
    }

    {:ok, preface, machine} = :cow_http2_machine.init(:client, options)
    {host, port} = config.inference
    authority = if :lists.member(?:, host), do: "[#{host}]:#{port}", else: "#{host}:#{port}"

    connection = %__MODULE__{
      socket: socket,
      machine: machine,
      pseudo: %{method: "POST", scheme: "http", authority: authority, path: "/infer"},
      headers: [{"x-cpu-passes", Integer.to_string(config.cpu_passes)}, {"content-type", "application/octet-stream"}]
    }

    {connection, [{:send, preface}]}
  end

  @doc "Sends a request, or queues it until another one has ended."
  @spec request(t(), map()) :: {t(), [action()]}
  def request(%__MODULE__{streams: streams, limit: limit} = connection, request) when map_size(streams) >= limit do
    {%{connection | queue: :queue.in(request, connection.queue)}, []}
  end

  def request(%__MODULE__{machine: machine} = connection, request) do
    headers = [{"content-length", Integer.to_string(byte_size(request.body))} | connection.headers]
    {:ok, number, machine} = :cow_http2_machine.init_stream("POST", machine)

    {:ok, :nofin, block, machine} =
      :cow_http2_machine.prepare_headers(number, machine, :nofin, connection.pseudo, headers)

    {frames, machine} =
      case :cow_http2_machine.send_or_queue_data(number, machine, :fin, {:data, request.body}) do
        {:ok, machine} -> {[], machine}
        {:send, parts, machine} -> {data_frames(parts), machine}
      end

    connection = %{
      connection
      | machine: machine,
        streams: Map.put(connection.streams, number, {request, nil, [], connection.bytes}),
        numbers: Map.put(connection.numbers, request.ref, number)
    }

    {connection, [{:send, [:cow_http2.headers(number, :nofin, block) | frames]}]}
  end

  @doc "Cancels a request."
  @spec cancel(t(), reference()) :: {t(), [action()]}
  def cancel(connection, ref) do
    case Map.pop(connection.numbers, ref) do
      {nil, _} ->
        {%{connection | queue: :queue.filter(&(&1.ref != ref), connection.queue)}, []}

      {number, numbers} ->
        # cowlib remembers only the last ten streams that were reset, and treats a response to another one as a
        # connection error. So a stream without bytes to send stays open in cowlib until no response can arrive any
        # more.
        waiting = :cow_http2_machine.get_stream_local_buffer_size(number, connection.machine)
        connection = %{connection | numbers: numbers, streams: Map.delete(connection.streams, number)}
        reset = {:send, :cow_http2.rst_stream(number, :cancel)}

        case waiting do
          {:ok, bytes} when bytes > 0 -> next(forget_stream(connection, number), [reset])
          _ -> next(connection, [reset, {:forget_later, number}])
        end
    end
  end

  @doc "Removes a stream that was cancelled some time ago."
  @spec forget(t(), pos_integer()) :: {t(), [action()]}
  def forget(connection, number), do: {forget_stream(connection, number), []}

  @doc "Parses bytes from the inference. Returns the resulting actions."
  @spec data(t(), binary()) :: {t(), [action()]}
  def data(connection, data) do
    connection = %{connection | bytes: connection.bytes + byte_size(data), buffer: join(connection.buffer, data)}
    {connection, actions} = frames(connection, [])
    {connection, more} = window(connection)
    {connection, Enum.reverse(actions, more)}
  end

  @doc "Returns the outcome of all requests when the connection is closed."
  @spec closed(t(), atom(), String.t()) :: [action()]
  def closed(connection, kind, message) do
    running =
      for {_, {request, status, _, bytes}} <- connection.streams do
        # A keep-alive connection was closed before any byte arrived since: the request can't have been read.
        if kind == :connection_reset and status == nil and bytes == connection.bytes and connection.answered > 0 and
             not request.retried,
           do: {:retry, request},
           else: {:fail, request, kind, message}
      end

    running ++ for(request <- :queue.to_list(connection.queue), do: {:retry, request})
  end

  defp join("", data), do: data
  defp join(buffer, data), do: buffer <> data

  defp frames(connection, actions) do
    case :cow_http2.parse(connection.buffer, @max_frame_bytes) do
      :more ->
        {connection, actions}

      {:ok, frame, remaining} ->
        {connection, new_actions} = frame(%{connection | buffer: remaining, heard: true}, frame)
        frames(connection, Enum.reverse(new_actions, actions))

      {:ignore, remaining} ->
        frames(%{connection | buffer: remaining}, actions)

      {:stream_error, number, reason, _text, remaining} ->
        {connection, new_actions} =
          stream_failed(%{connection | buffer: remaining}, number, "stream error: #{reason}", reason)

        frames(connection, Enum.reverse(new_actions, actions))

      {:connection_error, reason, _text} ->
        {%{connection | buffer: ""}, [broken(connection, reason) | actions]}
    end
  end

  # A peer that never sent a frame doesn't speak HTTP/2.
  defp broken(%{heard: false}, _reason), do: {:close, :parse_error, "the inference speaks no HTTP/2"}
  defp broken(_link, reason), do: {:close, :connection_reset, "the inference broke HTTP/2: #{reason}"}

  defp frame(connection, frame) do
    case :cow_http2_machine.frame(frame, connection.machine) do
      {:ok, machine} ->
        acknowledge(%{connection | machine: machine}, frame)

      {:ok, event, machine} ->
        event(%{connection | machine: machine}, event)

      {:send, parts, machine} ->
        acknowledge(%{connection | machine: machine}, frame, [{:send, data_frames(parts)}])

      {:error, {:stream_error, number, reason, _}, machine} ->
        rejected(%{connection | machine: machine}, number, reason)

      {:error, {:connection_error, reason, _}, machine} ->
        {%{connection | machine: machine}, [broken(connection, reason)]}
    end
  end

  defp acknowledge(connection, frame, actions \\ [])

  defp acknowledge(connection, {:settings, settings}, actions) do
    limit = Map.get(settings, :max_concurrent_streams, connection.limit)
    next(%{connection | limit: limit}, [{:send, :cow_http2.settings_ack()} | actions])
  end

  defp acknowledge(connection, {:ping, opaque}, actions),
    do: {connection, [{:send, :cow_http2.ping_ack(opaque)} | actions]}

  defp acknowledge(connection, _frame, actions), do: {connection, actions}

  defp event(connection, {:headers, number, is_fin, _headers, %{status: status}, _length}) do
    update(connection, number, is_fin, fn {request, _, body, bytes} -> {request, status, body, bytes} end)
  end

  defp event(connection, {:data, number, is_fin, data}) do
    update(connection, number, is_fin, fn {request, status, body, bytes} -> {request, status, [body | data], bytes} end)
  end

  defp event(connection, {:trailers, number, _headers}), do: update(connection, number, :fin, & &1)

  defp event(connection, {:rst_stream, number, reason}),
    do: stream_failed(connection, number, "stream reset: #{reason}", reason)

  defp event(connection, {:goaway, last, _reason, _data}) do
    {unread, streams} = Map.split_with(connection.streams, fn {number, _} -> number > last end)
    requests = for({_, {request, _, _, _}} <- unread, do: request) ++ :queue.to_list(connection.queue)
    numbers = Map.drop(connection.numbers, Enum.map(requests, & &1.ref))
    connection = %{connection | streams: streams, numbers: numbers, queue: :queue.new(), retired: true}

    retry =
      for request <- requests do
        if request.retried,
          do: {:fail, request, :connection_reset, "the inference went away twice"},
          else: {:retry, request}
      end

    finish(connection, [:retire | retry])
  end

  defp event(connection, _event), do: {connection, []}

  defp update(connection, number, is_fin, change) do
    case connection.streams do
      %{^number => stream} ->
        {request, status, body, _} = stream = change.(stream)

        cond do
          IO.iodata_length(body) > @max_answer_bytes -> too_long(connection, number, request, status)
          is_fin == :fin -> answered(connection, number, request, status, body)
          true -> {%{connection | streams: %{connection.streams | number => stream}}, []}
        end

      # The request was cancelled.
      _ ->
        {connection, []}
    end
  end

  defp answered(connection, number, request, status, body) do
    {connection, actions} = done(%{connection | answered: connection.answered + 1}, number, request)
    {connection, [{:answer, request, status, IO.iodata_to_binary(body)} | actions]}
  end

  defp too_long(connection, number, request, status) do
    {connection, actions} = done(forget_stream(connection, number), number, request)
    # An invalid body, which is not JSON.
    {connection, [{:send, :cow_http2.rst_stream(number, :cancel)}, {:answer, request, status, ""} | actions]}
  end

  defp stream_failed(connection, number, message, reason) do
    case connection.streams do
      %{^number => {request, status, _, _}} ->
        {connection, actions} = done(connection, number, request)
        # REFUSED_STREAM means that the request was not processed.
        retry = reason == :refused_stream and status == nil and not request.retried
        {connection, [if(retry, do: {:retry, request}, else: {:fail, request, :connection_reset, message}) | actions]}

      _ ->
        {connection, []}
    end
  end

  defp rejected(connection, number, reason) do
    {connection, actions} = stream_failed(connection, number, "stream error: #{reason}", reason)
    {connection, [{:send, :cow_http2.rst_stream(number, reason)} | actions]}
  end

  defp done(connection, number, request) do
    next(
      %{
        connection
        | streams: Map.delete(connection.streams, number),
          numbers: Map.delete(connection.numbers, request.ref)
      },
      []
    )
  end

  # A stream ended: a queued request may begin, or it was the last one of a connection that is going away.
  defp next(connection, actions) do
    case :queue.out(connection.queue) do
      {{:value, request}, queue} when map_size(connection.streams) < connection.limit ->
        {connection, sent} = request(%{connection | queue: queue}, request)
        next(connection, actions ++ sent)

      _ ->
        finish(connection, actions)
    end
  end

  defp finish(%{retired: true, streams: streams} = connection, actions) when streams == %{} do
    {connection, actions ++ [{:close, :connection_reset, "the inference went away"}]}
  end

  defp finish(connection, actions), do: {connection, actions}

  defp forget_stream(connection, number) do
    case :cow_http2_machine.reset_stream(number, connection.machine) do
      {:ok, machine} -> %{connection | machine: machine}
      {:error, :not_found} -> connection
    end
  end

  defp window(connection) do
    case :cow_http2_machine.ensure_window(@max_answer_bytes * 4, connection.machine) do
      :ok -> {connection, []}
      {:ok, increment, machine} -> {%{connection | machine: machine}, [{:send, :cow_http2.window_update(increment)}]}
    end
  end

  defp data_frames(parts), do: Enum.map(parts, fn {number, is_fin, parts} -> data_frames(number, is_fin, parts) end)
  defp data_frames(number, is_fin, [{:data, data}]), do: [:cow_http2.data(number, is_fin, data)]

  defp data_frames(number, is_fin, [{:data, data} | remaining]),
    do: [:cow_http2.data(number, :nofin, data) | data_frames(number, is_fin, remaining)]
end
