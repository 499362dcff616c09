defmodule ElixirCowboy.ProtocolTest do
  use ExUnit.Case, async: true

  alias ElixirCowboy.{Golden, Protocol}

  test "golden first messages are recognized" do
    for %{"state" => "first", "text" => text} = message <- Golden.messages("client") do
      assert Protocol.start?(text) == (message["means"] == "start"), message["name"]
    end
  end

  test "text that is not UTF-8 is not a start message" do
    refute Protocol.start?("{\"type\":\"\xFFstart\"}")
  end

  test "golden inference responses are parsed" do
    for %{"status" => status, "body" => body, "frames" => frames} = message <- Golden.messages("inference") do
      case Protocol.answer(status, body, frames, message["cpu_passes"]) do
        {:ok, _} ->
          assert message["means"] == "partial", message["name"]

        {:error, failure} ->
          assert message["means"] == "error", message["name"]
          error = JSON.decode!(IO.iodata_to_binary(Protocol.error(span(1, frames), failure, wait(%{}))))

          for key <- ~w(stage kind inference_status retryable) do
            assert error[key] == message[key], "#{message["name"]}: #{key}"
          end
      end
    end
  end

  test "partials equal the golden bytes" do
    for %{"of" => of, "text" => text} = message <- Golden.messages("partial") do
      {:ok, answer} = Protocol.answer(200, of["body"], of["frames"], of["cpu_passes"])
      config = %{cpu_passes: of["cpu_passes"], model_delay_ms: of["model_delay_ms"]}

      partial =
        Protocol.partial(
          span(of["oldest_frame_seq"], of["frames"]),
          answer,
          config,
          nanoseconds(of["flush_lateness_ms"])
        )

      assert {message["name"], lower(IO.iodata_to_binary(partial))} == {message["name"], lower(text)}
    end
  end

  test "errors equal the golden bytes" do
    for %{"of" => of, "text" => text} = message <- Golden.messages("error") do
      failure = %{kind: String.to_existing_atom(of["kind"]), status: of["inference_status"], message: of["message"]}
      error = Protocol.error(span(of["oldest_frame_seq"], of["frames"]), failure, wait(of))
      assert {message["name"], IO.iodata_to_binary(error)} == {message["name"], text}
    end
  end

  test "an invalid response is an error and never an exception" do
    body = ~s({"rms":1.5,"zero_crossings":7,"checksum":1,"samples":1280,"transcript":"now","audio_bytes":640})
    assert {:ok, _} = Protocol.answer(200, body, 1, 4)

    for seed <- 1..2000 do
      :rand.seed(:exsss, seed)
      position = Enum.random(0..(byte_size(body) - 1))
      <<before::binary-size(^position), _, rest::binary>> = body
      changed = <<before::binary, Enum.random(0..255), rest::binary>>
      assert elem(Protocol.answer(200, changed, 1, 4), 0) in [:ok, :error], "seed #{seed}"
    end
  end

  # Elixir writes the hexadecimal digits of an escape in upper case.
  defp lower(text), do: Regex.replace(~r/\\u[0-9a-fA-F]{4}/, text, &String.downcase/1)

  defp span(oldest, frames), do: %{oldest: oldest, newest: oldest + frames - 1, frames: frames}

  defp wait(of) do
    %{
      oldest_age: nanoseconds(of["oldest_age_ms"] || 0),
      newest_age: nanoseconds(of["newest_age_ms"] || 0),
      lateness: nanoseconds(of["flush_lateness_ms"] || 0),
      elapsed: of["inference_elapsed_ms"] && nanoseconds(of["inference_elapsed_ms"]),
      waiting: of["gateway_buffer_frames"] || 0
    }
  end

  defp nanoseconds(milliseconds), do: round(milliseconds * 1_000_000)
end
