defmodule ElixirCowboy.SessionSocket do
  @moduledoc """
  Functions on a session's socket that Cowboy doesn't offer: how many bytes a client hasn't read, and a close
  without a reset.

  Cowboy doesn't pass the socket to its handler. The socket is the only port that is linked to the connection's
  process.
  """

  # Maximum of bytes that the client hasn't read, and the time limit without progress; both from the contract.
  @unread_bytes 65_536
  @stall_timeout_ns 10_000_000_000
  # Time limit for the close handshake.
  @linger_ms 1_000

  @typedoc "Bytes received and sent so far, bytes that wait, and the time of the last progress."
  @type traffic :: {non_neg_integer(), non_neg_integer(), non_neg_integer(), integer()}

  @doc "Returns the socket of the calling process."
  @spec socket() :: port()
  def socket do
    {:links, links} = Process.info(self(), :links)
    Enum.find(links, &is_port/1)
  end

  @doc "Returns a session's traffic at its start, so that the bytes of the handshake aren't counted."
  @spec traffic(port()) :: traffic()
  def traffic(socket) do
    {_, _, traffic} = count(socket, {0, 0, 0, 0}, :erlang.monotonic_time(:nanosecond))
    traffic
  end

  @doc "Returns the bytes received and sent since the last call, and the new state."
  @spec count(port(), traffic(), integer()) :: {non_neg_integer(), non_neg_integer(), traffic()}
  def count(socket, {received, sent, waited, progress}, now) do
    case :inet.getstat(socket, [:recv_oct, :send_oct, :send_pend]) do
      {:ok, [recv_oct: total_received, send_oct: total_sent, send_pend: waiting]} ->
        progress = if waiting == 0 or total_sent - waiting > sent - waited, do: now, else: progress
        {total_received - received, total_sent - sent, {total_received, total_sent, waiting, progress}}

      # The socket is closed.
      {:error, _} ->
        {0, 0, {received, sent, waited, progress}}
    end
  end

  @doc "Returns whether the client is a slow consumer."
  @spec stalled?(traffic(), integer()) :: boolean()
  def stalled?({_, _, waiting, progress}, now), do: waiting > @unread_bytes or now - progress > @stall_timeout_ns

  @doc """
  Closes a connection whose Close frame was sent: shuts down the sending side after the waiting bytes, and discards
  inbound bytes for up to a second. If bytes were left unread, the kernel would reset the connection, and the Close
  frame might be lost.
  """
  @spec run(port(), term()) :: :ok
  def run(socket, {:error, reason}) when reason not in [:badframe, :badsize, :badencoding], do: release(socket)

  def run(socket, _reason) do
    :inet.setopts(socket, active: false)
    _ = :gen_tcp.shutdown(socket, :write)
    discard(socket, System.monotonic_time(:millisecond) + @linger_ms)
    release(socket)
  end

  defp discard(socket, deadline) do
    remaining = deadline - System.monotonic_time(:millisecond)

    case remaining > 0 and :gen_tcp.recv(socket, 0, remaining) do
      {:ok, _} -> discard(socket, deadline)
      _ -> :ok
    end
  end

  # A port outlives its owner until its queue is empty, so the queue of a client that never reads is discarded.
  defp release(socket) do
    case :inet.getstat(socket, [:send_pend]) do
      {:ok, [send_pend: waiting]} when waiting > 0 -> :inet.setopts(socket, linger: {true, 0})
      _ -> :ok
    end

    :gen_tcp.close(socket)
  end
end
