package wsladder.gateway;

import io.helidon.common.buffers.DataReader;
import io.helidon.webserver.CloseConnectionException;
import io.helidon.webserver.ServerConnectionException;
import io.helidon.websocket.WsCloseException;
import java.io.UncheckedIOException;

/**
 * Why a session ended: the reason in the books, and the Close frame for the client.
 *
 * @param reason close reason in the books
 * @param code code of the Close frame; 0: the session sends none
 * @param text reason of the Close frame
 * @param refused whether a complete message was refused
 */
record End(String reason, int code, String text, boolean refused) {
  static final End NO_START = new End("protocol", 1002, "first message must be start", true);
  static final End NO_AUDIO =
      new End("protocol", 1002, "expected binary PCM frames after start", true);
  static final End NO_FRAME = new End("protocol", 1003, "expected 640 byte PCM frame", true);
  static final End TOO_BIG = new End("too_big", 1009, "message is too big", false);
  static final End BROKEN_RULE = new End("protocol", 1002, "protocol error", false);
  static final End SLOW_CONSUMER = new End("slow_consumer", 1013, "client does not read", false);
  static final End SHUTDOWN = new End("shutdown", 1001, "gateway stops", false);
  static final End EOF = new End("eof", 0, "", false);
  static final End ERROR = new End("error", 0, "", false);

  /**
   * The client closed with {@code code}. It gets the same code back if that code is valid in a
   * Close frame, else 1002.
   */
  static End client(int code) {
    boolean registered = code >= 1000 && code <= 1014 && !(code >= 1004 && code <= 1006);
    boolean valid = registered || (code >= 3000 && code <= 4999);
    return valid ? new End("client", code, "", false) : BROKEN_RULE;
  }

  /** Returns the end that an exception of Helidon's frame reader stands for. */
  static End of(Exception e) {
    return switch (e.getCause()) {
      case WsCloseException broken when broken.closeCode() == TOO_BIG.code() -> TOO_BIG;
      case WsCloseException _ -> BROKEN_RULE;
      case DataReader.InsufficientDataAvailableException _ -> EOF;
      case null, default ->
          switch (e) {
            case DataReader.InsufficientDataAvailableException _ -> EOF;
            case ServerConnectionException _, UncheckedIOException _, InterruptedException _ ->
                ERROR;
            // A continuation frame without a first frame; Helidon has already sent the Close frame.
            case CloseConnectionException _ -> BROKEN_RULE;
            // Helidon throws an IllegalArgumentException for an unknown opcode.
            default -> BROKEN_RULE;
          };
    };
  }

  /** Whether the client may still be sending, so that its bytes must be discarded. */
  boolean needsLinger() {
    return code != 0;
  }
}
