defmodule ElixirCowboy.Session do
  @moduledoc """
  One session: the handler that Cowboy calls in the process of a connection.

  A running session doesn't wait for its socket: a wake-up for each of 50 frames per second costs more than all
  other work, and audio is needed once per interval. So after a read the socket is passive until the next look is
  due (`Schedule`). All bytes that have arrived by then are one message, which Cowboy parses and unmasks.

  The handler's state is `{frames, session}`: the frames of the current read, newest first, and all other state, so
  that a frame costs a list cell and a pair. Before the start message `frames` is `:opening`.
  """

  @behaviour :cowboy_websocket

  require ElixirCowboy.Protocol

  alias ElixirCowboy.{Backlog, Books, Gateway, Inference, Protocol, Schedule, SessionSocket}

  # Time that a tick waits for the read of its socket.
  @read_ms 5
  # A read with this number of frames has left more bytes in the socket.
  @full_read 95
  # Time limit for a session's last batch when the gateway stops, without the close handshake.
  @drain_ms 2_900
  @frame Protocol.frame_bytes()

  # active: the socket sends a message for the next bytes; tick: a tick that waits for the read; pending: the request in
  # flight
  defstruct [:config, :socket, :client, :schedule, :pending, :tick, :close_reason] ++
              [backlog: %Backlog{}, active: true, draining: false, traffic: nil]

  @impl true
  def init(request, _options) do
    config = Gateway.config()

    cond do
      :cowboy_req.method(request) != "GET" ->
        {:ok, :cowboy_req.reply(405, %{"allow" => "GET"}, request), :refused}

      not :cowboy_websocket.is_upgrade_request(request) or :cowboy_req.header("sec-websocket-version", request) != "13" ->
        refuse(:handshake, 426, %{"upgrade" => "websocket", "sec-websocket-version" => "13"}, request)

      Gateway.draining?() ->
        refuse(:draining, 503, %{}, request)

      config.max_connections > 0 and Books.open() >= config.max_connections ->
        refuse(:full, 503, %{}, request)

      true ->
        # Text that is not UTF-8 fails in the JSON parser and is refused like every other invalid start message.
        options = %{idle_timeout: :infinity, max_frame_size: 65_536, compress: false, validate_utf8: false, active_n: 1}
        {:cowboy_websocket, request, config, Map.put(options, :req_filter, fn _ -> %{} end)}
    end
  end

  defp refuse(reason, status, headers, request) do
    Books.add([{{:rejected, reason}, 1}])
    {:ok, :cowboy_req.reply(status, headers, request), :refused}
  end

  @impl true
  def websocket_init(config) do
    # Audio is in binaries outside the heap. A collection about once per second releases it, which is cheap because
    # the heap is small. Only full collections are used, because data that survives a minor one would be kept for a
    # long time.
    Process.flag(:fullsweep_after, 0)
    Process.flag(:min_bin_vheap_size, 8_192)
    Process.flag(:min_heap_size, 610)
    Books.add(accepted: 1, open: 1)
    Gateway.register()
    socket = SessionSocket.socket()
    traffic = SessionSocket.traffic(socket)
    {[], {:opening, %__MODULE__{config: config, socket: socket, client: Inference.pick(config), traffic: traffic}}}
  end

  @impl true
  def websocket_handle({:binary, frame}, {[], session}) when byte_size(frame) == @frame do
    send(self(), :read)
    {[active: false], {[frame], %{session | active: false}}}
  end

  def websocket_handle({:binary, frame}, {frames, session}) when is_list(frames) and byte_size(frame) == @frame do
    {[], {[frame | frames], session}}
  end

  def websocket_handle({:text, text}, {:opening, session}) do
    if Protocol.start?(text),
      do: {[], {[], start(session)}},
      else: close_on_violation(1002, "first message must be start", :opening, session)
  end

  def websocket_handle({:binary, _}, {:opening, session}),
    do: close_on_violation(1002, "first message must be start", :opening, session)

  def websocket_handle({:binary, _}, {frames, session}),
    do: close_on_violation(1003, "expected 640 byte PCM frame", frames, session)

  def websocket_handle({:text, _}, {frames, session}),
    do: close_on_violation(1002, "expected binary PCM frames after start", frames, session)

  # Cowboy has replied to pings already.
  def websocket_handle(_ping_or_pong, state), do: {[], state}

  @impl true
  def websocket_info(:read, {frames, session}) when is_list(frames) do
    session = count_read(frames, session)
    more = length(frames) >= @full_read and not session.draining
    {commands, session} = if session.tick, do: flush(session), else: {[], session}
    if more, do: {[{:active, true} | commands], {[], %{session | active: true}}}, else: {commands, {[], session}}
  end

  def websocket_info(:look, {frames, %{draining: false} = session}), do: look(frames, session)

  def websocket_info({:timeout, timer, :flush}, {frames, %{tick: %{timer: timer}} = session}) do
    {commands, session} = flush(count_read(frames, session))
    {commands, {[], session}}
  end

  def websocket_info({:answer, ref, status, body}, {frames, %{pending: %{ref: ref} = pending} = session}) do
    case Protocol.answer(status, body, pending.span.frames, session.config.cpu_passes) do
      {:ok, answer} ->
        complete_request(frames, session, Protocol.partial(pending.span, answer, session.config, pending.lateness))

      {:error, failure} ->
        fail_request(frames, session, failure)
    end
  end

  def websocket_info({:failed, ref, kind, message}, {frames, %{pending: %{ref: ref}} = session}),
    do: fail_request(frames, session, %{kind: kind, status: nil, message: message})

  def websocket_info({:timeout, timer, :inference}, {frames, %{pending: %{timer: timer} = pending} = session}) do
    Inference.cancel(session.client, pending.ref)
    message = "no answer within #{session.config.inference_timeout_ms} ms"
    fail_request(frames, session, %{kind: :timeout, status: nil, message: message})
  end

  def websocket_info(:drain, {:opening, session}), do: close(1001, "going away", :shutdown, :opening, session)

  def websocket_info(:drain, {frames, session}) do
    # Frames that the client has sent by now are still processed, as at a tick.
    Process.send_after(self(), :drained, @drain_ms)
    await_read(frames, %{session | draining: true}, 0)
  end

  def websocket_info(:drained, {frames, session}), do: close(1001, "going away", :shutdown, frames, session)
  # A late message of a request, a tick or a look that no longer exists.
  def websocket_info(_message, state), do: {[], state}

  @impl true
  def terminate(_reason, _request, :refused), do: :ok

  def terminate(reason, _request, {frames, %__MODULE__{} = session}) do
    session = if is_list(frames), do: count_read(frames, session), else: session
    Gateway.unregister()
    record_end(session.close_reason || close_reason(reason), count_traffic(session))
    if session.pending, do: Inference.cancel(session.client, session.pending.ref)
    SessionSocket.run(session.socket, reason)
  end

  # Called before the upgrade: Cowboy ends the process of the request, which is not a session.
  def terminate(_reason, _request, _config), do: :ok

  defp close_reason(:remote), do: :client
  defp close_reason({:remote, _, _}), do: :client
  defp close_reason({:error, :closed}), do: :eof
  defp close_reason({:error, :badframe}), do: :protocol
  defp close_reason({:error, :badsize}), do: :too_big
  defp close_reason(_reason), do: :error

  defp start(%{config: config} = session) do
    Books.add(received: 1, consumed: 1)
    now = now()
    jitter = config.flush_phase_jitter_ms * 1_000_000
    offset = if jitter > 0, do: :rand.uniform(jitter + 1) - 1, else: 0
    schedule_visit(%{session | schedule: Schedule.new(now, offset, config.flush_interval_ms * 1_000_000)})
  end

  # The session's only timer, apart from that of its request.
  defp schedule_visit(%{schedule: schedule} = session) do
    # Rounds up to the next millisecond, so that a tick is never early.
    milliseconds = -Integer.floor_div(-Schedule.due(schedule), 1_000_000)
    :erlang.send_after(milliseconds, self(), :look, abs: true)
    session
  end

  defp look(frames, session) do
    {tick, schedule} = Schedule.look(session.schedule, now())
    session = schedule_visit(%{session | schedule: schedule})

    case tick do
      :no_tick -> {[active: true], {frames, %{session | active: true}}}
      {:tick, lateness} -> tick(frames, session, lateness)
    end
  end

  defp tick(frames, session, lateness) do
    session = count_traffic(session)

    cond do
      SessionSocket.stalled?(session.traffic, now()) ->
        close(1013, "slow consumer", :slow_consumer, frames, session)

      session.pending ->
        count_tick(:skipped, lateness)
        {[active: true], {frames, %{session | active: true}}}

      true ->
        await_read(frames, session, lateness)
    end
  end

  # Reads the socket. The flush follows the read, or a timeout if there was nothing to read.
  defp await_read([], %{active: true} = session, lateness) do
    # The socket was activated before and had no bytes.
    {commands, session} = flush(%{session | tick: %{lateness: lateness, at: now(), timer: nil}})
    {commands, {[], session}}
  end

  defp await_read(frames, session, lateness) do
    tick = %{lateness: lateness, at: now(), timer: :erlang.start_timer(@read_ms, self(), :flush)}
    {[active: true], {frames, %{session | tick: tick, active: true}}}
  end

  # Counts what was read, and drops the oldest frames if too many wait.
  defp count_read([], session), do: session
  defp count_read(:opening, session), do: session

  defp count_read(frames, %{config: config} = session) do
    count = length(frames)
    {excess, backlog} = Backlog.push(session.backlog, frames, count, now(), config.max_buffered_frames)
    entry = [received: count, waiting: count - excess]
    Books.add(if excess > 0, do: [{{:dropped, :overflow}, excess} | entry], else: entry)
    %{session | backlog: backlog}
  end

  # Handles a tick without a request in flight, after the socket was read.
  defp flush(%{tick: %{lateness: lateness, at: at} = tick, pending: nil} = session) do
    if tick.timer, do: cancel(tick.timer)
    {dropped, backlog} = Backlog.take_dropped(session.backlog)
    {commands, session} = report_overflow(dropped, lateness, %{session | backlog: backlog, tick: nil})

    cond do
      backlog.count > 0 ->
        unless session.draining, do: count_tick(:flushed, lateness)
        {commands, send_batch(session, lateness, at)}

      session.draining ->
        {closing, session} = going_away(session)
        {commands ++ closing, session}

      true ->
        count_tick(:empty, lateness)
        {commands, session}
    end
  end

  # Stops while a request is in flight: the waiting audio is sent after its response.
  defp flush(session), do: {[], %{session | tick: nil}}

  defp send_batch(%{config: config} = session, lateness, at) do
    {body, span, backlog} = Backlog.take(session.backlog)
    Books.begin_request(span.frames)
    timeout = div(at, 1_000_000) + config.inference_timeout_ms
    ref = Inference.request(session.client, body, timeout)
    timer = :erlang.start_timer(timeout, self(), :inference, abs: true)
    %{session | backlog: backlog, pending: %{ref: ref, span: span, lateness: lateness, at: at, timer: timer}}
  end

  defp report_overflow(nil, _lateness, session), do: {[], session}

  defp report_overflow(span, lateness, %{config: config} = session) do
    message = "#{config.max_buffered_frames} frames waited: the oldest #{span.frames} were dropped"
    failure = %{kind: :overflow, status: nil, message: message}
    Books.add(sent: 1)
    {[{:text, Protocol.error(span, failure, error_context(span, session, lateness, nil))}], session}
  end

  # Handles a failed request: its frames get an error.
  defp fail_request(frames, %{pending: pending} = session, failure) do
    frame_count = pending.span.frames
    %{kind: kind} = failure
    # The waiting frames include those of the current read.
    session = count_read(frames, session)

    text =
      Protocol.error(pending.span, failure, error_context(pending.span, session, pending.lateness, now() - pending.at))

    Books.add([
      {{:dropped, kind}, frame_count},
      {{:failed, kind}, 1},
      {:in_flight, -frame_count},
      {:requests_in_flight, -1},
      {:sent, 1}
    ])

    after_request(if(is_list(frames), do: [], else: frames), session, text)
  end

  # Handles the response to the request in flight.
  defp complete_request(frames, %{pending: pending} = session, text) do
    count = pending.span.frames
    Books.add(delivered: count, answered: 1, in_flight: -count, requests_in_flight: -1, sent: 1)
    after_request(frames, session, text)
  end

  defp after_request(frames, session, text) do
    cancel(session.pending.timer)
    session = %{session | pending: nil}

    if session.draining and session.tick == nil do
      {commands, session} = flush(%{count_read(frames, session) | tick: %{lateness: 0, at: now(), timer: nil}})
      {[{:text, text} | commands], {[], session}}
    else
      {[text: text], {frames, session}}
    end
  end

  defp error_context(span, session, lateness, elapsed) do
    now = now()

    %{
      oldest_age: now - span.oldest_at,
      newest_age: now - span.newest_at,
      lateness: lateness,
      elapsed: elapsed,
      waiting: session.backlog.count
    }
  end

  defp close_on_violation(code, reason, frames, session) do
    session = count_read(frames, session)
    Books.add([{:received, 1}, {{:dropped, :protocol}, 1}])
    close(code, reason, :protocol, if(is_list(frames), do: [], else: frames), session)
  end

  defp close(code, reason, close_reason, frames, session) do
    {[{:close, code, reason}], {frames, %{session | close_reason: close_reason}}}
  end

  defp going_away(session), do: {[{:close, 1001, "going away"}], %{session | close_reason: :shutdown}}

  defp count_tick(outcome, lateness) do
    Books.add([{outcome, 1}, {Books.lateness_bucket(lateness), 1}, {:lateness_ns, lateness}])
  end

  defp count_traffic(session) do
    {received, sent, traffic} = SessionSocket.count(session.socket, session.traffic, now())
    if received + sent > 0, do: Books.add(bytes_received: received, bytes_sent: sent)
    %{session | traffic: traffic}
  end

  # Moves the session's frames and its connection to their final counters.
  defp record_end(close_reason, %{backlog: backlog, pending: pending}) do
    waiting =
      [waiting: -backlog.count, open: -1] ++ [{{:dropped, :closed}, backlog.count}, {{:closed, close_reason}, 1}]

    abandoned =
      if pending do
        frames = pending.span.frames
        [{:in_flight, -frames}, {:requests_in_flight, -1}, {:abandoned, 1}, {{:dropped, :closed}, frames}]
      else
        []
      end

    Books.add(waiting ++ abandoned)
  end

  defp cancel(timer), do: :erlang.cancel_timer(timer, async: true, info: false)
  defp now, do: :erlang.monotonic_time(:nanosecond)
end
