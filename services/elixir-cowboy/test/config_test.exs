defmodule ElixirCowboy.ConfigTest do
  use ExUnit.Case, async: true

  alias ElixirCowboy.Config

  test "the defaults are the contract's" do
    {:ok, config} = Config.parse([], %{})

    assert %Config{port: 3000, metrics_port: 0, cpu_passes: 4, model_delay_ms: 75, max_buffered_frames: 200} = config
    assert %Config{flush_interval_ms: 1000, flush_phase_jitter_ms: 0, inference_timeout_ms: 2000} = config
    assert %Config{ip: {127, 0, 0, 1}, inference: {~c"127.0.0.1", 9000}, max_connections: 0} = config
  end

  test "flags win over the environment, in both spellings" do
    environment = %{"FLUSH_INTERVAL_MS" => "50", "PORT" => "1"}
    arguments = ["--flush-interval-ms", "200", "--port=0"]
    assert {:ok, %Config{flush_interval_ms: 200, port: 0}} = Config.parse(arguments, environment)
  end

  test "an empty variable counts as not set" do
    assert {:ok, %Config{port: 3000}} = Config.parse([], %{"PORT" => ""})
  end

  test "an invalid flag value is rejected with the name of the flag" do
    for {flag, value} <- [
          {"--port", "65536"},
          {"--host", "localhost"},
          {"--cpu-passes", "0"},
          {"--model-delay-ms", "-1"},
          {"--flush-interval-ms", "9"},
          {"--flush-phase-jitter-ms", "60001"},
          {"--inference-timeout-ms", "0"},
          {"--inference-http-clients", "0"},
          {"--worker-threads", "many"},
          {"--max-buffered-frames", ""},
          {"--max-connections", "1.5"}
        ] do
      assert {:error, message} = Config.parse([flag, value], %{})
      assert message =~ flag and message =~ inspect(value)
    end
  end

  test "an invalid variable is rejected with the name of the variable" do
    assert {:error, message} = Config.parse([], %{"CPU_PASSES" => "x"})
    assert message =~ "CPU_PASSES"
  end

  test "an unknown flag and a flag without a value are rejected" do
    assert {:error, _} = Config.parse(["--prot", "1"], %{})
    assert {:error, _} = Config.parse(["--port"], %{})
  end

  test "the inference URL must have a host and a port" do
    for {url, host, port} <- [
          {"http://127.0.0.1:9000", ~c"127.0.0.1", 9000},
          {"http://inference-sim:80/", ~c"inference-sim", 80},
          {"http://[::1]:9000", ~c"::1", 9000}
        ] do
      assert {:ok, %Config{inference: {^host, ^port}}} = Config.parse(["--inference-url", url], %{})
    end

    for url <- ~w(https://a:1 http://a http://a:0 http://a:x http://:1 http://a:1/b http://u@a:1 http://a:65536) do
      assert {:error, _} = Config.parse(["--inference-url", url], %{}), url
    end
  end

  test "--version and --help don't start the gateway" do
    assert Config.parse(["--version"], %{}) == :version
    assert Config.parse(["--help"], %{}) == :help
    assert Config.usage() =~ "--max-buffered-frames 1..100000"
  end
end
