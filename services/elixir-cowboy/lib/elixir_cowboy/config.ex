defmodule ElixirCowboy.Config do
  @moduledoc """
  The settings, from flags and from environment variables of the same meaning. A flag overrides its variable.

  `services/README.md` ("Gateways") lists them. No I/O: callers pass the environment.
  """

  # name, default, and the integers that make sense
  @integers [
    port: {3000, 0..65_535},
    metrics_port: {0, 0..65_535},
    cpu_passes: {4, 1..65_536},
    model_delay_ms: {75, 0..86_400_000},
    flush_interval_ms: {1000, 10..60_000},
    flush_phase_jitter_ms: {0, 0..60_000},
    inference_timeout_ms: {2000, 1..600_000},
    inference_http_clients: {4, 1..4096},
    worker_threads: {0, 0..1024},
    max_buffered_frames: {200, 1..100_000},
    max_connections: {0, 0..1_000_000_000}
  ]

  @texts [host: "127.0.0.1", inference_url: "http://127.0.0.1:9000"]
  @names Keyword.keys(@texts) ++ Keyword.keys(@integers)

  @enforce_keys [:ip, :inference | Keyword.keys(@integers)]
  defstruct @enforce_keys

  @type t :: %__MODULE__{
          ip: :inet.ip_address(),
          inference: {charlist(), :inet.port_number()},
          port: :inet.port_number(),
          metrics_port: :inet.port_number(),
          cpu_passes: pos_integer(),
          model_delay_ms: non_neg_integer(),
          flush_interval_ms: pos_integer(),
          flush_phase_jitter_ms: non_neg_integer(),
          inference_timeout_ms: pos_integer(),
          inference_http_clients: pos_integer(),
          worker_threads: non_neg_integer(),
          max_buffered_frames: pos_integer(),
          max_connections: non_neg_integer()
        }

  @doc "Parses flags, and the environment for settings without a flag."
  @spec parse([String.t()], %{String.t() => String.t()}) :: {:ok, t()} | :version | :help | {:error, String.t()}
  def parse(arguments, environment) do
    case flags(arguments, %{}) do
      {:ok, flags} -> settings(flags, environment)
      other -> other
    end
  end

  @doc "Returns all flags, one per line."
  @spec usage() :: String.t()
  def usage do
    texts = for {name, default} <- @texts, do: "  #{flag(name)} TEXT  [env #{variable(name)}, default #{default}]"

    integers =
      for {name, {default, range}} <- @integers,
          do: "  #{flag(name)} #{range.first}..#{range.last}  [env #{variable(name)}, default #{default}]"

    Enum.join(["Speech-to-text gateway on Cowboy", "", "  --version", "  --help" | texts ++ integers], "\n")
  end

  defp flags([], found), do: {:ok, found}
  defp flags(["--version" | _], _found), do: :version
  defp flags(["--help" | _], _found), do: :help

  defp flags([argument | rest], found) do
    with [flag | inline] <- String.split(argument, "=", parts: 2),
         name when name != nil <- Enum.find(@names, &(flag(&1) == flag)),
         [value | rest] <- inline ++ rest do
      flags(rest, Map.put(found, name, value))
    else
      nil -> {:error, "#{argument}: there is no such flag; --help lists them"}
      [] -> {:error, "#{argument}: a value must follow"}
    end
  end

  defp settings(flags, environment) do
    read = fn name ->
      case {flags, environment[variable(name)]} do
        {%{^name => text}, _} -> {flag(name), text}
        {_, nil} -> nil
        # An empty variable counts as unset, because shells and charts omit values that way.
        {_, ""} -> nil
        {_, text} -> {variable(name), text}
      end
    end

    with {:ok, ip} <- address(read.(:host) || {"HOST", @texts[:host]}),
         {:ok, inference} <- inference(read.(:inference_url) || {"INFERENCE_URL", @texts[:inference_url]}),
         {:ok, integers} <- integers(read) do
      {:ok, struct!(__MODULE__, [{:ip, ip}, {:inference, inference} | integers])}
    end
  end

  defp integers(read) do
    Enum.reduce_while(@integers, {:ok, []}, fn {name, {default, range}}, {:ok, done} ->
      case integer(read.(name), default, range) do
        {:ok, value} -> {:cont, {:ok, [{name, value} | done]}}
        error -> {:halt, error}
      end
    end)
  end

  defp integer(nil, default, _range), do: {:ok, default}

  defp integer({source, text}, _default, first..last//1) do
    with true <- text =~ ~r/\A[0-9]{1,12}\z/, value when value >= first and value <= last <- String.to_integer(text) do
      {:ok, value}
    else
      _ -> {:error, "#{source} is #{inspect(text)}: it must be an integer from #{first} to #{last}"}
    end
  end

  defp address({source, text}) do
    case :inet.parse_strict_address(String.to_charlist(text)) do
      {:ok, ip} -> {:ok, ip}
      {:error, _} -> {:error, "#{source} is #{inspect(text)}: it must be an IP address"}
    end
  end

  defp inference({source, text}) do
    with [_, host, port] <- Regex.run(~r"\Ahttp://(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+):([0-9]{1,5})/?\z", text),
         port when port in 1..65_535 <- String.to_integer(port) do
      {:ok, {host |> String.trim_leading("[") |> String.trim_trailing("]") |> String.to_charlist(), port}}
    else
      _ -> {:error, "#{source} is #{inspect(text)}: it must be http://host:port and nothing more"}
    end
  end

  defp variable(name), do: name |> Atom.to_string() |> String.upcase()
  defp flag(name), do: "--" <> (name |> Atom.to_string() |> String.replace("_", "-"))
end
