defmodule ElixirCowboy.Farewell do
  @moduledoc """
  The socket of a session, for what Cowboy leaves open: how much a client hasn't read, and an end without a reset.

  Cowboy's handler isn't told its socket. It is the one port that is linked to the connection's process.
  """

  # What a client may leave unread, and for how long.
  @unread_bytes 65_536
  @patience 10_000_000_000
  # How long the close frame may take to reach the client.
  @farewell_ms 1_000

  @typedoc "Bytes received and sent so far, bytes that wait, and when the last of them left."
  @type traffic :: {non_neg_integer(), non_neg_integer(), non_neg_integer(), integer()}

  @doc "The socket of the calling process."
  @spec socket() :: port()
  def socket do
    {:links, links} = Process.info(self(), :links)
    Enum.find(links, &is_port/1)
  end

  @doc "A session's traffic at its begin: what the handshake took doesn't count."
  @spec traffic(port()) :: traffic()
  def traffic(socket) do
    {_, _, traffic} = count(socket, {0, 0, 0, 0}, :erlang.monotonic_time(:nanosecond))
    traffic
  end

  @doc "Bytes received and sent since the last count, and the count of now."
  @spec count(port(), traffic(), integer()) :: {non_neg_integer(), non_neg_integer(), traffic()}
  def count(socket, {received, sent, waited, progress}, now) do
    case :inet.getstat(socket, [:recv_oct, :send_oct, :send_pend]) do
      {:ok, [recv_oct: in_all, send_oct: out_all, send_pend: waiting]} ->
        progress = if waiting == 0 or out_all - waiting > sent - waited, do: now, else: progress
        {in_all - received, out_all - sent, {in_all, out_all, waiting, progress}}

      # The socket is gone.
      {:error, _} ->
        {0, 0, {received, sent, waited, progress}}
    end
  end

  @doc "Whether the client reads too little of what it gets."
  @spec stalled?(traffic(), integer()) :: boolean()
  def stalled?({_, _, waiting, progress}, now), do: waiting > @unread_bytes or now - progress > @patience

  @doc """
  The end of a connection whose close frame was sent: the end of our stream behind what waits, and up to a second of
  throwing away what still comes. Bytes left unread would make the kernel reset the connection, and the close frame might
  be lost.
  """
  @spec run(port(), term()) :: :ok
  def run(socket, {:error, reason}) when reason not in [:badframe, :badsize, :badencoding], do: release(socket)

  def run(socket, _reason) do
    :inet.setopts(socket, active: false)
    _ = :gen_tcp.shutdown(socket, :write)
    discard(socket, System.monotonic_time(:millisecond) + @farewell_ms)
    release(socket)
  end

  defp discard(socket, deadline) do
    left = deadline - System.monotonic_time(:millisecond)

    case left > 0 and :gen_tcp.recv(socket, 0, left) do
      {:ok, _} -> discard(socket, deadline)
      _ -> :ok
    end
  end

  # A port whose owner ends goes on until its queue is empty: that of a client that never reads is thrown away.
  defp release(socket) do
    case :inet.getstat(socket, [:send_pend]) do
      {:ok, [send_pend: waiting]} when waiting > 0 -> :inet.setopts(socket, linger: {true, 0})
      _ -> :ok
    end

    :gen_tcp.close(socket)
  end
end
