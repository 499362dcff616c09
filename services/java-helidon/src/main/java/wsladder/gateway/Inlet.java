package wsladder.gateway;

import io.helidon.common.buffers.DataReader;
import io.helidon.webserver.ConnectionContext;
import java.util.Arrays;

/** A session's socket, as its reader reads it. */
final class Inlet {
  /** What one visit reads at most: a client that floods must not keep others waiting. */
  private static final int VISIT_BYTES = 64 << 10;

  /** A read of so many bytes may have left some behind: it is the size of Helidon's buffer. */
  private static final int FULL_READ_BYTES = 8192;

  private final ConnectionContext socket;

  Inlet(ConnectionContext socket) {
    this.socket = socket;
  }

  /** Bytes that came together with the request for the upgrade. */
  byte[] early() {
    DataReader early = socket.dataReader();
    return early.available() > 0 ? early.readBytes(early.available()) : new byte[0];
  }

  /** Waits for something, and reads it; {@code null} at the end of the stream. */
  byte[] readSome() {
    return socket.serverSocket().get();
  }

  /** Reads until nothing is left in the socket. In one piece it is understood faster. */
  byte[] readAll() {
    byte[] bytes = readSome();
    byte[] last = bytes;
    while (last != null && last.length == FULL_READ_BYTES && bytes.length < VISIT_BYTES) {
      last = readSome();
      if (last != null) {
        bytes = Arrays.copyOf(bytes, bytes.length + last.length);
        System.arraycopy(last, 0, bytes, bytes.length - last.length, last.length);
      }
    }
    return bytes;
  }

  /** Throws away what comes, until the stream ends or the socket is closed. */
  void discard() {
    byte[] bytes = readSome();
    while (bytes != null) {
      bytes = readSome();
    }
  }

  /** Closes the socket; a thread that reads it is woken. */
  void close() {
    try {
      socket.serverSocket().close();
    } catch (RuntimeException e) {
      // It was closed already.
    }
  }
}
