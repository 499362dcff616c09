package wsladder.gateway;

import io.helidon.common.buffers.DataReader;
import io.helidon.webserver.CloseConnectionException;
import io.helidon.webserver.ServerConnectionException;
import io.helidon.websocket.WsCloseException;
import java.io.UncheckedIOException;

/**
 * Why a session ended: the close reason in the books, and the Close frame for the client.
 *
 * @param label close reason in the books
 * @param code code of the Close frame; 0: the session sends none
 * @param text reason of the Close frame
 * @param refused whether a complete message was refused
 */
record CloseReason(String label, int code, String text, boolean refused) {
  static final CloseReason EXPECTED_START =
      new CloseReason("protocol", 1002, "first message must be start", true);
  static final CloseReason EXPECTED_AUDIO =
      new CloseReason("protocol", 1002, "expected binary PCM frames after start", true);
  static final CloseReason WRONG_FRAME_SIZE =
      new CloseReason("protocol", 1003, "expected 640 byte PCM frame", true);
  static final CloseReason TOO_BIG = new CloseReason("too_big", 1009, "message is too big", false);
  static final CloseReason PROTOCOL_ERROR =
      new CloseReason("protocol", 1002, "protocol error", false);
  static final CloseReason SLOW_CONSUMER =
      new CloseReason("slow_consumer", 1013, "client does not read", false);
  static final CloseReason SHUTDOWN = new CloseReason("shutdown", 1001, "gateway stops", false);
  static final CloseReason EOF = new CloseReason("eof", 0, "", false);
  static final CloseReason ERROR = new CloseReason("error", 0, "", false);

  /**
   * The reason when the client closed with {@code code}. The reply has the same code if that code
   * is valid in a Close frame, else 1002.
   */
  static CloseReason client(int code) {
    boolean registered = code >= 1000 && code <= 1014 && !(code >= 1004 && code <= 1006);
    boolean valid = registered || (code >= 3000 && code <= 4999);
    return valid ? new CloseReason("client", code, "", false) : PROTOCOL_ERROR;
  }

  /** Classifies an exception of Helidon's frame reader. */
  static CloseReason of(Exception e) {
    return switch (e.getCause()) {
      case WsCloseException close when close.closeCode() == TOO_BIG.code() -> TOO_BIG;
      case WsCloseException _ -> PROTOCOL_ERROR;
      case DataReader.InsufficientDataAvailableException _ -> EOF;
      case null, default ->
          switch (e) {
            case DataReader.InsufficientDataAvailableException _ -> EOF;
            case ServerConnectionException _, UncheckedIOException _, InterruptedException _ ->
                ERROR;
            // A continuation frame without a first frame; Helidon has already sent the Close frame.
            case CloseConnectionException _ -> PROTOCOL_ERROR;
            // Helidon throws an IllegalArgumentException for an unknown opcode.
            default -> PROTOCOL_ERROR;
          };
    };
  }

  /** Whether the client may still be sending, so that its bytes must be discarded. */
  boolean needsLinger() {
    return code != 0;
  }
}
