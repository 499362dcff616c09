defmodule ElixirCowboy.Link do
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
          | {:again, map()}
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

    link = %__MODULE__{
      socket: socket,
      machine: machine,
      pseudo: %{method: "POST", scheme: "http", authority: authority, path: "/infer"},
      headers: [{"x-cpu-passes", Integer.to_string(config.cpu_passes)}, {"content-type", "application/octet-stream"}]
    }

    {link, [{:send, preface}]}
  end

  @doc "Sends a request, or queues it until another one has ended."
  @spec request(t(), map()) :: {t(), [action()]}
  def request(%__MODULE__{streams: streams, limit: limit} = link, request) when map_size(streams) >= limit do
    {%{link | queue: :queue.in(request, link.queue)}, []}
  end

  def request(%__MODULE__{machine: machine} = link, request) do
    headers = [{"content-length", Integer.to_string(byte_size(request.body))} | link.headers]
    {:ok, number, machine} = :cow_http2_machine.init_stream("POST", machine)
    {:ok, :nofin, block, machine} = :cow_http2_machine.prepare_headers(number, machine, :nofin, link.pseudo, headers)

    {frames, machine} =
      case :cow_http2_machine.send_or_queue_data(number, machine, :fin, {:data, request.body}) do
        {:ok, machine} -> {[], machine}
        {:send, parts, machine} -> {data_frames(parts), machine}
      end

    link = %{
      link
      | machine: machine,
        streams: Map.put(link.streams, number, {request, nil, [], link.bytes}),
        numbers: Map.put(link.numbers, request.ref, number)
    }

    {link, [{:send, [:cow_http2.headers(number, :nofin, block) | frames]}]}
  end

  @doc "Cancels a request."
  @spec cancel(t(), reference()) :: {t(), [action()]}
  def cancel(link, ref) do
    case Map.pop(link.numbers, ref) do
      {nil, _} ->
        {%{link | queue: :queue.filter(&(&1.ref != ref), link.queue)}, []}

      {number, numbers} ->
        # cowlib remembers only the last ten streams that were reset, and treats a response to another one as a
        # connection error. So a stream without bytes to send stays open in cowlib until no response can arrive any
        # more.
        waiting = :cow_http2_machine.get_stream_local_buffer_size(number, link.machine)
        link = %{link | numbers: numbers, streams: Map.delete(link.streams, number)}
        reset = {:send, :cow_http2.rst_stream(number, :cancel)}

        case waiting do
          {:ok, bytes} when bytes > 0 -> next(forget_stream(link, number), [reset])
          _ -> next(link, [reset, {:forget_later, number}])
        end
    end
  end

  @doc "Removes a stream that was cancelled some time ago."
  @spec forget(t(), pos_integer()) :: {t(), [action()]}
  def forget(link, number), do: {forget_stream(link, number), []}

  @doc "Parses bytes from the inference. Returns the resulting actions."
  @spec data(t(), binary()) :: {t(), [action()]}
  def data(link, data) do
    link = %{link | bytes: link.bytes + byte_size(data), buffer: join(link.buffer, data)}
    {link, actions} = frames(link, [])
    {link, more} = window(link)
    {link, Enum.reverse(actions, more)}
  end

  @doc "Returns the outcome of all requests when the connection is closed."
  @spec lost(t(), atom(), String.t()) :: [action()]
  def lost(link, kind, message) do
    running =
      for {_, {request, status, _, bytes}} <- link.streams do
        # A keep-alive connection was closed before any byte arrived since: the request can't have been read.
        if kind == :connection_reset and status == nil and bytes == link.bytes and link.answered > 0 and
             not request.retried,
           do: {:again, request},
           else: {:fail, request, kind, message}
      end

    running ++ for(request <- :queue.to_list(link.queue), do: {:again, request})
  end

  defp join("", data), do: data
  defp join(buffer, data), do: buffer <> data

  defp frames(link, actions) do
    case :cow_http2.parse(link.buffer, @max_frame_bytes) do
      :more ->
        {link, actions}

      {:ok, frame, rest} ->
        {link, made} = frame(%{link | buffer: rest, heard: true}, frame)
        frames(link, Enum.reverse(made, actions))

      {:ignore, rest} ->
        frames(%{link | buffer: rest}, actions)

      {:stream_error, number, reason, _text, rest} ->
        {link, made} = stream_failed(%{link | buffer: rest}, number, "stream error: #{reason}", reason)
        frames(link, Enum.reverse(made, actions))

      {:connection_error, reason, _text} ->
        {%{link | buffer: ""}, [broken(link, reason) | actions]}
    end
  end

  # A peer that never sent a frame doesn't speak HTTP/2.
  defp broken(%{heard: false}, _reason), do: {:close, :parse_error, "the inference speaks no HTTP/2"}
  defp broken(_link, reason), do: {:close, :connection_reset, "the inference broke HTTP/2: #{reason}"}

  defp frame(link, frame) do
    case :cow_http2_machine.frame(frame, link.machine) do
      {:ok, machine} -> acknowledge(%{link | machine: machine}, frame)
      {:ok, event, machine} -> event(%{link | machine: machine}, event)
      {:send, parts, machine} -> acknowledge(%{link | machine: machine}, frame, [{:send, data_frames(parts)}])
      {:error, {:stream_error, number, reason, _}, machine} -> rejected(%{link | machine: machine}, number, reason)
      {:error, {:connection_error, reason, _}, machine} -> {%{link | machine: machine}, [broken(link, reason)]}
    end
  end

  defp acknowledge(link, frame, actions \\ [])

  defp acknowledge(link, {:settings, settings}, actions) do
    limit = Map.get(settings, :max_concurrent_streams, link.limit)
    next(%{link | limit: limit}, [{:send, :cow_http2.settings_ack()} | actions])
  end

  defp acknowledge(link, {:ping, opaque}, actions), do: {link, [{:send, :cow_http2.ping_ack(opaque)} | actions]}
  defp acknowledge(link, _frame, actions), do: {link, actions}

  defp event(link, {:headers, number, is_fin, _headers, %{status: status}, _length}) do
    update(link, number, is_fin, fn {request, _, body, bytes} -> {request, status, body, bytes} end)
  end

  defp event(link, {:data, number, is_fin, data}) do
    update(link, number, is_fin, fn {request, status, body, bytes} -> {request, status, [body | data], bytes} end)
  end

  defp event(link, {:trailers, number, _headers}), do: update(link, number, :fin, & &1)
  defp event(link, {:rst_stream, number, reason}), do: stream_failed(link, number, "stream reset: #{reason}", reason)

  defp event(link, {:goaway, last, _reason, _data}) do
    {unread, streams} = Map.split_with(link.streams, fn {number, _} -> number > last end)
    requests = for({_, {request, _, _, _}} <- unread, do: request) ++ :queue.to_list(link.queue)
    numbers = Map.drop(link.numbers, Enum.map(requests, & &1.ref))
    link = %{link | streams: streams, numbers: numbers, queue: :queue.new(), retired: true}

    again =
      for request <- requests do
        if request.retried,
          do: {:fail, request, :connection_reset, "the inference went away twice"},
          else: {:again, request}
      end

    finish(link, [:retire | again])
  end

  defp event(link, _event), do: {link, []}

  defp update(link, number, is_fin, change) do
    case link.streams do
      %{^number => stream} ->
        {request, status, body, _} = stream = change.(stream)

        cond do
          IO.iodata_length(body) > @max_answer_bytes -> too_long(link, number, request, status)
          is_fin == :fin -> answered(link, number, request, status, body)
          true -> {%{link | streams: %{link.streams | number => stream}}, []}
        end

      # The request was cancelled.
      _ ->
        {link, []}
    end
  end

  defp answered(link, number, request, status, body) do
    {link, actions} = done(%{link | answered: link.answered + 1}, number, request)
    {link, [{:answer, request, status, IO.iodata_to_binary(body)} | actions]}
  end

  defp too_long(link, number, request, status) do
    {link, actions} = done(forget_stream(link, number), number, request)
    # An invalid body, which is not JSON.
    {link, [{:send, :cow_http2.rst_stream(number, :cancel)}, {:answer, request, status, ""} | actions]}
  end

  defp stream_failed(link, number, message, reason) do
    case link.streams do
      %{^number => {request, status, _, _}} ->
        {link, actions} = done(link, number, request)
        # REFUSED_STREAM means that the request was not processed.
        again = reason == :refused_stream and status == nil and not request.retried
        {link, [if(again, do: {:again, request}, else: {:fail, request, :connection_reset, message}) | actions]}

      _ ->
        {link, []}
    end
  end

  defp rejected(link, number, reason) do
    {link, actions} = stream_failed(link, number, "stream error: #{reason}", reason)
    {link, [{:send, :cow_http2.rst_stream(number, reason)} | actions]}
  end

  defp done(link, number, request) do
    next(%{link | streams: Map.delete(link.streams, number), numbers: Map.delete(link.numbers, request.ref)}, [])
  end

  # A stream ended: a queued request may begin, or it was the last one of a connection that is going away.
  defp next(link, actions) do
    case :queue.out(link.queue) do
      {{:value, request}, queue} when map_size(link.streams) < link.limit ->
        {link, sent} = request(%{link | queue: queue}, request)
        next(link, actions ++ sent)

      _ ->
        finish(link, actions)
    end
  end

  defp finish(%{retired: true, streams: streams} = link, actions) when streams == %{} do
    {link, actions ++ [{:close, :connection_reset, "the inference went away"}]}
  end

  defp finish(link, actions), do: {link, actions}

  defp forget_stream(link, number) do
    case :cow_http2_machine.reset_stream(number, link.machine) do
      {:ok, machine} -> %{link | machine: machine}
      {:error, :not_found} -> link
    end
  end

  defp window(link) do
    case :cow_http2_machine.ensure_window(@max_answer_bytes * 4, link.machine) do
      :ok -> {link, []}
      {:ok, increment, machine} -> {%{link | machine: machine}, [{:send, :cow_http2.window_update(increment)}]}
    end
  end

  defp data_frames(parts), do: Enum.map(parts, fn {number, is_fin, parts} -> data_frames(number, is_fin, parts) end)
  defp data_frames(number, is_fin, [{:data, data}]), do: [:cow_http2.data(number, is_fin, data)]

  defp data_frames(number, is_fin, [{:data, data} | rest]),
    do: [:cow_http2.data(number, :nofin, data) | data_frames(number, is_fin, rest)]
end
