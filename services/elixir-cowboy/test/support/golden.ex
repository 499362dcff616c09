defmodule ElixirCowboy.Golden do
  @moduledoc "The contract's golden messages."

  @file_name Path.expand("../../../testdata/stt-messages.json", __DIR__)
  @external_resource @file_name
  @messages @file_name |> File.read!() |> JSON.decode!()

  @doc "One list of the file."
  @spec messages(String.t()) :: [map()]
  def messages(list), do: Map.fetch!(@messages, list)
end
