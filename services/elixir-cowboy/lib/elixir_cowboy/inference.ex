defmodule ElixirCowboy.Inference do
  @moduledoc """
  A client of the inference: one process that sends batches over HTTP/2 with prior knowledge (h2c) and passes each
  response to the session that sent the request. There are `INFERENCE_HTTP_CLIENTS` of them under the supervisor;
  sessions take them in turn.

  cowlib keeps the HTTP/2 state; this module has the socket, the requests, and their outcome when a connection ends.
  The session has the timer of a request and cancels it after the time limit.
  """

  use GenServer

  alias ElixirCowboy.{Config, Link}

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

  # links: all connections by their sockets; current: the one for new requests; places: where each request is
  defstruct [:config, :current, links: %{}, places: %{}]

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
    case Map.pop(state.places, ref) do
      {nil, _} ->
        {:noreply, state}

      {socket, places} ->
        state = %{state | places: places}
        {:noreply, apply_link(state, socket, &Link.cancel(&1, ref))}
    end
  end

  @impl true
  def handle_info({:tcp, socket, data}, state), do: {:noreply, apply_link(state, socket, &Link.data(&1, data))}

  def handle_info({:tcp_passive, socket}, state) do
    :inet.setopts(socket, active: 100)
    {:noreply, state}
  end

  def handle_info({:tcp_closed, socket}, state), do: {:noreply, lose(state, socket, "the connection was closed")}

  def handle_info({:tcp_error, socket, reason}, state) do
    {:noreply, lose(state, socket, "the connection failed: #{inspect(reason)}")}
  end

  def handle_info({:forget, socket, stream}, state), do: {:noreply, apply_link(state, socket, &Link.forget(&1, stream))}
  def handle_info(_message, state), do: {:noreply, state}

  defp begin(state, request) do
    cond do
      # The session has reported the timeout, or is about to.
      now() >= request.deadline -> state
      state.current -> place(state, request)
      true -> connect(state, request)
    end
  end

  defp place(state, request) do
    state = %{state | places: Map.put(state.places, request.ref, state.current)}
    apply_link(state, state.current, &Link.request(&1, request))
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
        {link, actions} = Link.new(socket, state.config)
        state = %{state | current: socket, links: Map.put(state.links, socket, link)}
        state |> act(socket, actions) |> place(request)

      {:error, reason} ->
        fail(state, request, :connection_reset, "failed to connect to the inference: #{:inet.format_error(reason)}")
    end
  end

  # Runs an operation of one connection and executes the resulting actions.
  defp apply_link(state, socket, operation) do
    case state.links do
      %{^socket => link} ->
        {link, actions} = operation.(link)
        act(%{state | links: Map.put(state.links, socket, link)}, socket, actions)

      _ ->
        state
    end
  end

  defp act(state, socket, actions), do: Enum.reduce(actions, state, &action(&1, &2, socket))

  defp action({:send, data}, state, socket) do
    # On failure the socket's own message follows and ends the connection.
    _ = :gen_tcp.send(socket, data)
    state
  end

  defp action({:answer, request, status, body}, state, _socket) do
    send(request.from, {:answer, request.ref, status, body})
    %{state | places: Map.delete(state.places, request.ref)}
  end

  defp action({:fail, request, kind, message}, state, _socket), do: fail(state, request, kind, message)

  defp action({:again, request}, state, _socket) do
    begin(%{state | places: Map.delete(state.places, request.ref)}, %{request | retried: true})
  end

  # Sends no more requests on this connection, which is closed after its last one.
  defp action(:retire, %{current: socket} = state, socket), do: %{state | current: nil}
  defp action(:retire, state, _socket), do: state

  defp action({:close, kind, message}, state, socket) do
    :gen_tcp.close(socket)
    lose(state, socket, kind, message)
  end

  defp action({:forget_later, stream}, state, socket) do
    Process.send_after(self(), {:forget, socket, stream}, 2_000)
    state
  end

  defp lose(state, socket, kind \\ :connection_reset, message) do
    case Map.pop(state.links, socket) do
      {nil, _} ->
        state

      {link, links} ->
        state = %{state | links: links, current: if(state.current == socket, do: nil, else: state.current)}
        act(state, socket, Link.lost(link, kind, message))
    end
  end

  defp fail(state, request, kind, message) do
    send(request.from, {:failed, request.ref, kind, message})
    %{state | places: Map.delete(state.places, request.ref)}
  end

  defp now, do: System.monotonic_time(:millisecond)
end
