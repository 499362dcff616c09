defmodule ElixirCowboy.Gateway do
  @moduledoc """
  State that all processes share besides the books: the settings, the open sessions, and whether the gateway is
  stopping. Settings never change, so they are a persistent term, which costs nothing to read.
  """

  use GenServer

  alias ElixirCowboy.{Books, Config}

  @sessions __MODULE__.Sessions

  @spec start_link(Config.t()) :: GenServer.on_start()
  def start_link(config), do: GenServer.start_link(__MODULE__, config, name: __MODULE__)

  @impl true
  def init(config) do
    Books.new()
    :ets.new(@sessions, [:named_table, :public, write_concurrency: true])
    :persistent_term.put({__MODULE__, :config}, config)
    :persistent_term.put({__MODULE__, :began}, System.monotonic_time(:millisecond))
    :persistent_term.put({__MODULE__, :draining}, false)
    {:ok, config}
  end

  @doc "Returns the settings."
  @spec config() :: Config.t()
  def config, do: :persistent_term.get({__MODULE__, :config})

  @doc "Returns the gateway's version."
  @spec version() :: String.t()
  def version, do: to_string(Application.spec(:elixir_cowboy, :vsn))

  @doc "Returns the uptime in seconds."
  @spec uptime_seconds() :: float()
  def uptime_seconds do
    (System.monotonic_time(:millisecond) - :persistent_term.get({__MODULE__, :began})) / 1000
  end

  @doc "Returns whether the gateway is stopping and refuses connections."
  @spec draining?() :: boolean()
  def draining?, do: :persistent_term.get({__MODULE__, :draining})

  @doc "Registers the calling process as a session. If the gateway is stopping, the session is notified at once."
  @spec register() :: :ok
  def register do
    :ets.insert(@sessions, {self()})
    if draining?(), do: send(self(), :drain)
    :ok
  end

  @doc "Unregisters the calling process as a session."
  @spec unregister() :: :ok
  def unregister do
    :ets.delete(@sessions, self())
    :ok
  end

  @doc "Notifies all sessions to end and waits for them, at most this number of milliseconds."
  @spec drain(pos_integer()) :: :ok
  def drain(timeout_ms) do
    :persistent_term.put({__MODULE__, :draining}, true)
    sessions = for {pid} <- :ets.tab2list(@sessions), do: pid
    monitors = Map.new(sessions, &{Process.monitor(&1), &1})
    Enum.each(sessions, &send(&1, :drain))
    await(monitors, System.monotonic_time(:millisecond) + timeout_ms)
  end

  defp await(monitors, _deadline) when monitors == %{}, do: :ok

  defp await(monitors, deadline) do
    receive do
      {:DOWN, monitor, :process, _, _} -> await(Map.delete(monitors, monitor), deadline)
    after
      max(0, deadline - System.monotonic_time(:millisecond)) -> :ok
    end
  end
end
