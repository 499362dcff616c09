defmodule ElixirCowboy.Health do
  @moduledoc "The handler of `GET /health` on the client port."

  @behaviour :cowboy_handler

  @impl true
  def init(request, state) do
    case :cowboy_req.method(request) do
      "GET" ->
        body = ~s({"ok":true,"runtime":"elixir-cowboy"})
        {:ok, :cowboy_req.reply(200, %{"content-type" => "application/json"}, body, request), state}

      _ ->
        {:ok, :cowboy_req.reply(405, %{"allow" => "GET"}, request), state}
    end
  end
end
