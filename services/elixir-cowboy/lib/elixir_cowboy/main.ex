defmodule ElixirCowboy.Main do
  @moduledoc "The entry point: parses the settings, starts the application and prints the ready line."

  alias ElixirCowboy.{Application, Config}

  @doc "Called by `erl -s`. The arguments are those after `-extra`."
  @spec start() :: :ok | no_return()
  def start do
    arguments = Enum.map(:init.get_plain_arguments(), &to_string/1)

    case Config.parse(arguments, System.get_env()) do
      {:ok, config} -> serve(config)
      :version -> leave(0, :stdio, version())
      :help -> leave(0, :stdio, Config.usage())
      {:error, message} -> leave(2, :stderr, "elixir-cowboy: #{message}")
    end
  end

  @doc "Returns the output of `--version`."
  @spec version() :: String.t()
  def version do
    Elixir.Application.load(:elixir_cowboy)
    Elixir.Application.load(:cowboy)
    cowboy = Elixir.Application.spec(:cowboy, :vsn)
    own = Elixir.Application.spec(:elixir_cowboy, :vsn)
    "elixir-cowboy #{own} (Elixir #{System.version()}, OTP #{System.otp_release()}, cowboy #{cowboy})"
  end

  defp serve(config) do
    if config.worker_threads > 0, do: limit_schedulers(config.worker_threads)
    Elixir.Application.put_env(:elixir_cowboy, :config, config)

    case Elixir.Application.ensure_all_started(:elixir_cowboy, type: :permanent) do
      {:ok, _} ->
        preload()
        IO.puts(ready())

      {:error, {application, reason}} ->
        leave(1, :stderr, "elixir-cowboy: failed to start #{application}: #{inspect(reason)}")
    end
  end

  # The runtime starts with one scheduler per available CPU (affinity and the cgroup's quota).
  defp limit_schedulers(threads) do
    :erlang.system_flag(:schedulers_online, min(threads, :erlang.system_info(:schedulers)))
  end

  # Loads all modules now, because otherwise the first session would wait for the code loader.
  defp preload do
    for application <- [:elixir_cowboy, :cowboy, :cowlib, :ranch], do: load_modules(application)
    :code.ensure_modules_loaded([JSON, :json, :binary, :crypto, :base64, :rand, :maps, :queue, :gen_tcp, :inet_tcp])
  end

  defp load_modules(application) do
    {:ok, modules} = :application.get_key(application, :modules)
    :code.ensure_modules_loaded(modules)
  end

  defp ready do
    # Built as a string to keep the key order of the contract's example.
    address = JSON.encode!(Application.address(:clients))
    metrics = JSON.encode!(Application.address(:metrics))
    ~s({"event":"ready","address":#{address},"metrics_address":#{metrics},"pid":#{System.pid()}})
  end

  defp leave(status, device, text) do
    IO.puts(device, text)
    System.halt(status)
  end
end
