defmodule ElixirCowboy.Application do
  @moduledoc """
  The supervision tree: the books and settings, the connections to the inference, and Cowboy's two listeners, under which each connection is
  a process. SIGTERM stops the application, and OTP calls `prep_stop/1`,
  which drains the sessions.
  """

  use Application

  alias ElixirCowboy.{Gateway, Health, Inference, Metrics, Session}

  # A session's last batch may take 2.9 s and its close handshake 1 s, which is within the contract's 4 s.
  @drain_ms 3_950
  # Time limit of a pending handshake, because a client that stalls in it occupies a process.
  @handshake_timeout_ms 10_000
  # Idle time limit of the metrics port, longer than the time between two readings of a reader that keeps its
  # connection.
  @metrics_timeout_ms 3_600_000

  @impl true
  def start(_type, _arguments) do
    config = Application.fetch_env!(:elixir_cowboy, :config)

    children =
      [{Gateway, config}] ++
        Inference.child_specs(config) ++
        [
          listener(:metrics, config.metrics_port, metrics_routes(), @metrics_timeout_ms),
          listener(:clients, config.port, client_routes(), @handshake_timeout_ms)
        ]

    Supervisor.start_link(children, strategy: :one_for_one, name: ElixirCowboy.Supervisor)
  end

  @impl true
  def prep_stop(state) do
    :ranch.suspend_listener(:clients)
    Gateway.drain(@drain_ms)
    state
  end

  @doc "Returns the address and port of a listener."
  @spec address(:clients | :metrics) :: String.t()
  def address(listener) do
    {ip, port} = :ranch.get_addr(listener)
    host = to_string(:inet.ntoa(ip))
    if tuple_size(ip) == 8, do: "[#{host}]:#{port}", else: "#{host}:#{port}"
  end

  defp client_routes, do: [{:_, [{"/ws/stt", Session, []}, {"/health", Health, []}]}]

  defp metrics_routes do
    pages = for page <- [:healthz, :readyz, :stats, :metrics], do: {"/#{page}", Metrics, page}
    [{:_, pages}]
  end

  defp listener(name, port, routes, timeout_ms) do
    config = Application.fetch_env!(:elixir_cowboy, :config)

    transport = %{
      max_connections: :infinity,
      num_acceptors: 4,
      socket_opts: socket_options(config.ip, port)
    }

    protocol = %{
      env: %{dispatch: :cowboy_router.compile(routes)},
      protocols: [:http],
      request_timeout: timeout_ms,
      idle_timeout: timeout_ms,
      inactivity_timeout: timeout_ms,
      max_keepalive: 1_000_000,
      max_header_value_length: 8192,
      max_headers: 64,
      # The size of the socket's own buffer determines how much is read at once (see socket_options).
      dynamic_buffer: false
    }

    :ranch.child_spec(name, :ranch_tcp, transport, :cowboy_clear, protocol)
  end

  defp socket_options(ip, port) do
    [
      if(tuple_size(ip) == 8, do: :inet6, else: :inet),
      ip: ip,
      port: port,
      backlog: 8192,
      nodelay: true,
      # Maximum of bytes that one visit reads from a socket; a third of a second of audio has 11 KB.
      buffer: 65_536,
      # A session never blocks on a client that doesn't read: its messages stay in the socket's queue, which is
      # checked once per tick. The watermarks are above the contract's 64 KiB, and the timeout above its 10 s.
      high_watermark: 262_144,
      low_watermark: 131_072,
      send_timeout: 11_000,
      send_timeout_close: true
    ]
  end
end
