package wsladder.gateway;

import io.helidon.common.buffers.DataReader;
import io.helidon.webserver.ConnectionContext;
import java.util.Arrays;

/** The inbound side of a session's socket. Its reads block the session's reader. */
final class SocketReader {
  /** Limit of one {@link #readAll}, so that a client that floods doesn't delay other sessions. */
  private static final int MAX_READ_BYTES = 64 << 10;

  /** Size of Helidon's read buffer. A read of this size may have left bytes in the socket. */
  private static final int FULL_READ_BYTES = 8192;

  private final ConnectionContext socket;

  SocketReader(ConnectionContext socket) {
    this.socket = socket;
  }

  /** Returns the bytes that arrived together with the upgrade request, once. */
  byte[] takeEarlyBytes() {
    DataReader early = socket.dataReader();
    return early.available() > 0 ? early.readBytes(early.available()) : new byte[0];
  }

  /** Waits for bytes and reads them. Returns {@code null} at the end of the stream. */
  byte[] readSome() {
    return socket.serverSocket().get();
  }

  /**
   * Waits for bytes and reads until the socket is empty, at most {@code MAX_READ_BYTES}. Helidon
   * parses one large array faster than several small ones.
   */
  byte[] readAll() {
    byte[] bytes = readSome();
    byte[] last = bytes;
    while (last != null && last.length == FULL_READ_BYTES && bytes.length < MAX_READ_BYTES) {
      last = readSome();
      if (last != null) {
        bytes = Arrays.copyOf(bytes, bytes.length + last.length);
        System.arraycopy(last, 0, bytes, bytes.length - last.length, last.length);
      }
    }
    return bytes;
  }

  /** Discards inbound bytes until the stream ends or the socket is closed. */
  void discard() {
    byte[] bytes = readSome();
    while (bytes != null) {
      bytes = readSome();
    }
  }

  /** Closes the socket and thereby wakes a thread that reads it. */
  void close() {
    try {
      socket.serverSocket().close();
    } catch (RuntimeException e) {
      // The socket was already closed.
    }
  }
}
