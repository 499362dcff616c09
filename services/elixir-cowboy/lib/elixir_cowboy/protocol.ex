defmodule ElixirCowboy.Protocol do
  @moduledoc """
  The messages: the client's start message, the inference's response, and the partials and errors that clients get.
  No I/O.

  Cowboy handles WebSocket frames. Elixir's own JSON parser is configured to keep all pairs of an object, so that
  duplicate keys are detected.
  """

  @frame_bytes 640
  @frame_samples 320
  @keys ["audio_bytes", "checksum", "rms", "samples", "transcript", "zero_crossings"]

  @type kind :: :overflow | :timeout | :connection_reset | :http_429 | :http_5xx | :parse_error
  @type answer :: %{String.t() => term()}
  @type failure :: %{kind: kind(), status: nil | pos_integer(), message: String.t()}

  @doc "Returns the size of one audio frame in bytes: 20 ms of 16 kHz mono PCM."
  defmacro frame_bytes, do: @frame_bytes

  @doc "Whether a text is exactly the object `{\"type\":\"start\"}`."
  @spec start?(binary()) :: boolean()
  def start?(~s({"type":"start"})), do: true
  def start?(text), do: decode(text) == {:ok, {:object, [{"type", "start"}]}}

  @doc "Parses the inference's response to a batch with this number of frames."
  @spec answer(pos_integer(), binary(), pos_integer(), pos_integer()) :: {:ok, answer()} | {:error, failure()}
  def answer(status, body, frames, cpu_passes) when status in 200..299 do
    with {:ok, {:object, pairs}} <- decode(body), {:ok, answer} <- check(pairs, frames, cpu_passes) do
      {:ok, answer}
    else
      {:error, message} -> {:error, %{kind: :parse_error, status: status, message: message}}
      {:ok, _} -> {:error, %{kind: :parse_error, status: status, message: "the inference's answer is no JSON object"}}
    end
  end

  def answer(429, _body, _frames, _cpu_passes), do: {:error, refused(:http_429, 429)}
  def answer(status, _body, _frames, _cpu_passes), do: {:error, refused(:http_5xx, status)}

  defp refused(kind, status), do: %{kind: kind, status: status, message: "the inference answered #{status}"}

  defp check(pairs, frames, cpu_passes) do
    answer = Map.new(pairs)
    samples = cpu_passes * @frame_samples * frames
    audio_bytes = @frame_bytes * frames

    case answer do
      _ when length(pairs) != 6 or map_size(answer) != 6 ->
        {:error, "the inference's answer has other keys than #{Enum.join(@keys, ", ")}"}

      %{
        "rms" => rms,
        "zero_crossings" => zero_crossings,
        "checksum" => checksum,
        "samples" => ^samples,
        "transcript" => transcript,
        "audio_bytes" => ^audio_bytes
      }
      when is_number(rms) and is_integer(zero_crossings) and zero_crossings >= 0 and
             is_integer(checksum) and checksum in 0..0xFFFF_FFFF and is_binary(transcript) and transcript != "" ->
        {:ok, answer}

      %{"samples" => has} when is_integer(has) and has != samples ->
        {:error, "the inference's answer has #{has} samples instead of #{samples}"}

      %{"audio_bytes" => has} when is_integer(has) and has != audio_bytes ->
        {:error, "the inference's answer has #{has} bytes of audio instead of #{audio_bytes}"}

      _ ->
        {:error, "the inference's answer has other keys or values than it should"}
    end
  end

  @doc "Returns the partial that covers a span, as JSON; lateness is in nanoseconds."
  @spec partial(map(), answer(), map(), non_neg_integer()) :: iodata()
  def partial(span, answer, config, lateness) do
    [
      ~s({"type":"partial","oldest_frame_seq":),
      Integer.to_string(span.oldest),
      ~s(,"newest_frame_seq":),
      Integer.to_string(span.newest),
      ~s(,"frames":),
      Integer.to_string(span.frames),
      ~s(,"rms":),
      number(answer["rms"]),
      ~s(,"zero_crossings":),
      Integer.to_string(answer["zero_crossings"]),
      ~s(,"checksum":),
      Integer.to_string(answer["checksum"]),
      ~s(,"samples":),
      Integer.to_string(answer["samples"]),
      ~s(,"transcript":),
      :json.encode_binary(answer["transcript"]),
      ~s(,"audio_bytes":),
      Integer.to_string(answer["audio_bytes"]),
      ~s(,"cpu_passes":),
      Integer.to_string(config.cpu_passes),
      ~s(,"model_delay_ms":),
      Integer.to_string(config.model_delay_ms),
      ~s(,"flush_lateness_ms":),
      milliseconds(lateness),
      ~s(,"inflight_model_jobs":0})
    ]
  end

  @doc """
  Returns the error that covers a span, as JSON. `wait` has, in nanoseconds, `oldest_age`, `newest_age`, `lateness`
  and `elapsed` (or `nil`), and the frames that wait now as `waiting`.
  """
  @spec error(map(), failure(), map()) :: iodata()
  def error(span, %{kind: kind, status: status, message: message}, wait) do
    [
      ~s({"type":"error","stage":"),
      stage(kind),
      ~s(","kind":"),
      Atom.to_string(kind),
      ~s(","message":),
      :json.encode_binary(message),
      ~s(,"oldest_frame_seq":),
      Integer.to_string(span.oldest),
      ~s(,"newest_frame_seq":),
      Integer.to_string(span.newest),
      ~s(,"frames":),
      Integer.to_string(span.frames),
      ~s(,"audio_bytes":),
      Integer.to_string(span.frames * @frame_bytes),
      ~s(,"oldest_age_ms":),
      milliseconds(wait.oldest_age),
      ~s(,"newest_age_ms":),
      milliseconds(wait.newest_age),
      ~s(,"flush_lateness_ms":),
      milliseconds(wait.lateness),
      ~s(,"inference_elapsed_ms":),
      if(wait.elapsed, do: milliseconds(wait.elapsed), else: "null"),
      ~s(,"inflight_gateway_batches":),
      if(kind == :overflow, do: "0", else: "1"),
      ~s(,"gateway_buffer_frames":),
      Integer.to_string(wait.waiting),
      ~s(,"inference_status":),
      if(status, do: Integer.to_string(status), else: "null"),
      ~s(,"retryable":),
      Atom.to_string(retryable?(kind, status)),
      "}"
    ]
  end

  defp stage(:overflow), do: "websocket_receive"
  defp stage(:parse_error), do: "inference_response_parse"
  defp stage(_), do: "inference_request"

  defp retryable?(:http_5xx, status), do: status in 500..599
  defp retryable?(kind, _status), do: kind in [:timeout, :connection_reset, :http_429]

  defp milliseconds(nanoseconds), do: number(nanoseconds / 1_000_000)

  defp number(integer) when is_integer(integer), do: Integer.to_string(integer)
  # The shortest digits. Erlang writes 4000.0 as 4.0e3; whole numbers that a reader counts are written out.
  defp number(float) when trunc(float) == float and abs(float) < 1.0e15, do: Integer.to_string(trunc(float)) <> ".0"
  defp number(float), do: :erlang.float_to_binary(float, [:short])

  # JSON with all pairs of its objects, in the order in which they came.
  defp decode(text) do
    decoders = [
      object_push: fn key, value, pairs -> [{key, value} | pairs] end,
      object_start: fn _ -> [] end,
      object_finish: fn pairs, outer -> {{:object, Enum.reverse(pairs)}, outer} end
    ]

    case JSON.decode(text, [], decoders) do
      {value, _, rest} -> if rest =~ ~r/\A[ \t\r\n]*\z/, do: {:ok, value}, else: {:error, "something follows the JSON"}
      {:error, reason} -> {:error, "the inference's answer is no JSON: #{inspect(reason)}"}
    end
  rescue
    # Erlang's parser raises for a number that no float can hold.
    error -> {:error, "the inference's answer is no JSON: #{Exception.message(error)}"}
  end
end
