defmodule ElixirCowboy.MixProject do
  use Mix.Project

  def project do
    [
      app: :elixir_cowboy,
      version: "0.1.0",
      elixir: "~> 1.18",
      start_permanent: Mix.env() == :prod,
      elixirc_paths: if(Mix.env() == :test, do: ["lib", "test/support"], else: ["lib"]),
      # Tests start what they need, because the application needs settings.
      aliases: [test: "test --no-start"],
      # Cowboy comes from Debian, next to Erlang's own applications, so nothing is fetched.
      deps: []
    ]
  end

  def application do
    [extra_applications: [:crypto, :ranch, :cowlib, :cowboy], mod: {ElixirCowboy.Application, []}]
  end
end
