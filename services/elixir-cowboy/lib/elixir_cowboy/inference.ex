defmodule ElixirCowboy.Inference do
  @moduledoc """
  A client of the inference: one process that sends batches over HTTP/2 with prior knowledge (h2c) and passes each
  response to the session that sent the request. There are `INFERENCE_HTTP_CLIENTS` of them under the supervisor;
  sessions take them in turn.

  cowlib keeps the HTTP/2 state; this module has the socket, the requests, and their outcome when a connection ends.
  The session has the timer of a request and cancels it after the time limit.
  """

  use GenServer

  alias ElixirCowboy.{Config, Http2Connection}

  # Time limit for connecting. It counts towards the request's own time limit, which is checked when connecting ends.
  @connect_timeout_ms 1_000

  @typedoc "A request for one batch. `deadline` is monotonic time in milliseconds."
  @type request :: %{
          ref: reference(),
          from: pid(),
          body: binary(),
          deadline: integer(),
          retried: boolean()
        }

  @doc "Returns the child specifications of all clients."
  @spec child_specs(Config.t()) :: [Supervisor.child_spec()]
  def child_specs(config) do
    :persistent_term.put({__MODULE__, :turn}, :atomics.new(1, signed: false))

    for number <- 1..config.inference_http_clients,
        do: Supervisor.child_spec({__MODULE__, {config, number}}, id: number)
  end

  @spec start_link({Config.t(), pos_integer()}) :: GenServer.on_start()
  def start_link({config, number}), do: GenServer.start_link(__MODULE__, config, name: name(number))

  @doc "Returns the client for the next session."
  @spec pick(Config.t()) :: atom()
  def pick(config) do
    turn = :atomics.add_get(:persistent_term.get({__MODULE__, :turn}), 1, 1)
    name(rem(turn, config.inference_http_clients) + 1)
  end

  @doc """
  Sends a batch. The caller receives one message, `{:answer, ref, status, body}` or `{:failed, ref, kind, message}`,
  and none after `cancel/2`.
  """
  @spec request(atom(), binary(), integer()) :: reference()
  def request(client, body, deadline) do
    ref = make_ref()
    GenServer.cast(client, {:request, %{ref: ref, from: self(), body: body, deadline: deadline, retried: false}})
    ref
  end

  @doc "Cancels a request and resets its stream."
  @spec cancel(atom(), reference()) :: :ok
  def cancel(client, ref), do: GenServer.cast(client, {:cancel, ref})

  defp name(number), do: :"#{__MODULE__}.#{number}"

  # connections: all connections by their sockets; current: the one for new requests; sockets: that of each request
  defstruct [:config, :current, connections: %{}, sockets: %{}]

  @impl true
  def init(config) do
    # All sessions depend on this process, and each send to a socket yields. At a session's priority, a few hundred
    # runnable sessions would let only one request pass per scheduling round.
    Process.flag(:priority, :high)
    # Large bodies pass through this process; without full collections they would be kept for a long time.
    Process.flag(:fullsweep_after, 8)
    {:ok, %__MODULE__{config: config}}
  end

  @impl true
  def handle_cast({:request, request}, state), do: {:noreply, begin(state, request)}

  def handle_cast({:cancel, ref}, state) do
    case Map.pop(state.sockets, ref) do
      {nil, _} ->
        {:noreply, state}

      {socket, sockets} ->
        state = %{state | sockets: sockets}
        {:noreply, apply_connection(state, socket, &Http2Connection.cancel(&1, ref))}
    end
  end

  @impl true
  def handle_info({:tcp, socket, data}, state),
    do: {:noreply, apply_connection(state, socket, &Http2Connection.data(&1, data))}

  def handle_info({:tcp_passive, socket}, state) do
    :inet.setopts(socket, active: 100)
    {:noreply, state}
  end

  def handle_info({:tcp_closed, socket}, state),
    do: {:noreply, handle_close(state, socket, "the connection was closed")}

  def handle_info({:tcp_error, socket, reason}, state) do
    {:noreply, handle_close(state, socket, "the connection failed: #{inspect(reason)}")}
  end

  def handle_info({:forget, socket, stream}, state),
    do: {:noreply, apply_connection(state, socket, &Http2Connection.forget(&1, stream))}

  def handle_info(_message, state), do: {:noreply, state}

  defp begin(state, request) do
    cond do
      # The session has reported the timeout, or is about to.
      now() >= request.deadline -> state
      state.current -> assign(state, request)
      true -> connect(state, request)
    end
  end

  defp assign(state, request) do
    state = %{state | sockets: Map.put(state.sockets, request.ref, state.current)}
    apply_connection(state, state.current, &Http2Connection.request(&1, request))
  end

  defp connect(state, request) do
    {host, port} = state.config.inference
    timeout = max(1, min(@connect_timeout_ms, request.deadline - now()))
    family = if :lists.member(?:, host), do: [:inet6], else: []

    # The queue is large enough for what flow control permits, so a client process never blocks on the inference.
    options = [
      :binary,
      active: 100,
      nodelay: true,
      buffer: 65_536,
      high_watermark: 16_777_216,
      low_watermark: 8_388_608,
      send_timeout: 1_000
    ]

    case :gen_tcp.connect(host, port, family ++ options, timeout) do
      {:ok, socket} ->
        {connection, actions} = Http2Connection.new(socket, state.config)
        state = %{state | current: socket, connections: Map.put(state.connections, socket, connection)}
        state |> execute(socket, actions) |> assign(request)

      {:error, reason} ->
        fail(state, request, :connection_reset, "failed to connect to the inference: #{:inet.format_error(reason)}")
    end
  end

  # Runs an operation of one connection and executes the resulting actions.
  defp apply_connection(state, socket, operation) do
    case state.connections do
      %{^socket => connection} ->
        {connection, actions} = operation.(connection)
        execute(%{state | connections: Map.put(state.connections, socket, connection)}, socket, actions)

      _ ->
        state
    end
  end

  defp execute(state, socket, actions), do: Enum.reduce(actions, state, &action(&1, &2, socket))

  defp action({:send, data}, state, socket) do
    # On failure the socket's own message follows and ends the connection.
    _ = :gen_tcp.send(socket, data)
    state
  end

  defp action({:answer, request, status, body}, state, _socket) do
    send(request.from, {:answer, request.ref, status, body})
    %{state | sockets: Map.delete(state.sockets, request.ref)}
  end

  defp action({:fail, request, kind, message}, state, _socket), do: fail(state, request, kind, message)

  defp action({:retry, request}, state, _socket) do
    begin(%{state | sockets: Map.delete(state.sockets, request.ref)}, %{request | retried: true})
  end

  # Sends no more requests on this connection, which is closed after its last one.
  defp action(:retire, %{current: socket} = state, socket), do: %{state | current: nil}
  defp action(:retire, state, _socket), do: state

  defp action({:close, kind, message}, state, socket) do
    :gen_tcp.close(socket)
    handle_close(state, socket, kind, message)
  end

  defp action({:forget_later, stream}, state, socket) do
    Process.send_after(self(), {:forget, socket, stream}, 2_000)
    state
  end

  defp handle_close(state, socket, kind \\ :connection_reset, message) do
    case Map.pop(state.connections, socket) do
      {nil, _} ->
        state

      {connection, connections} ->
        state = %{state | connections: connections, current: if(state.current == socket, do: nil, else: state.current)}
        execute(state, socket, Http2Connection.closed(connection, kind, message))
    end
  end

  defp fail(state, request, kind, message) do
    send(request.from, {:failed, request.ref, kind, message})
    %{state | sockets: Map.delete(state.sockets, request.ref)}
  end

  defp now, do: System.monotonic_time(:millisecond)
end
