package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import io.helidon.websocket.WsListener;
import io.helidon.websocket.WsSession;
import java.io.ByteArrayOutputStream;

/**
 * Receives the messages of one client from Helidon, in parts. It joins the parts, checks each
 * message against the contract and passes it to the session. It runs on the session's reader.
 */
final class Listener implements WsListener {
  /** Longest payload of a control frame (RFC 6455, section 5.5). */
  private static final int MAX_CONTROL_BYTES = 125;

  private final Session session;
  private boolean isStarted;

  /** Parts of an incomplete text message, else {@code null}. */
  private StringBuilder text;

  /** Parts of an incomplete binary message, else {@code null}. */
  private ByteArrayOutputStream binary;

  Listener(Session session) {
    this.session = session;
  }

  @Override
  public void onOpen(WsSession webSocket) {
    session.opened(webSocket);
  }

  @Override
  public void onMessage(WsSession webSocket, BufferData payload, boolean last) {
    boolean isUnfragmented = last && binary == null && text == null;
    if (isUnfragmented && isStarted && payload.available() == Protocol.FRAME_BYTES) {
      session.receive(payload);
      return;
    }
    if (text != null) {
      session.end(CloseReason.PROTOCOL_ERROR);
      return;
    }
    if (binary == null) {
      binary = new ByteArrayOutputStream();
    }
    if (binary.size() + payload.available() > Protocol.MAX_MESSAGE_BYTES) {
      session.end(CloseReason.TOO_BIG);
      return;
    }
    binary.writeBytes(payload.readBytes());
    if (last) {
      byte[] message = binary.toByteArray();
      binary = null;
      handleBinary(message);
    }
  }

  private void handleBinary(byte[] message) {
    if (!isStarted) {
      session.end(CloseReason.EXPECTED_START);
    } else if (message.length != Protocol.FRAME_BYTES) {
      session.end(CloseReason.WRONG_FRAME_SIZE);
    } else {
      session.receive(BufferData.create(message));
    }
  }

  @Override
  public void onMessage(WsSession webSocket, String part, boolean last) {
    if (binary != null) {
      session.end(CloseReason.PROTOCOL_ERROR);
      return;
    }
    if (text == null) {
      text = new StringBuilder();
    }
    if (text.length() + part.length() > Protocol.MAX_MESSAGE_BYTES) {
      session.end(CloseReason.TOO_BIG);
      return;
    }
    text.append(part);
    if (last) {
      String message = text.toString();
      text = null;
      handleText(message);
    }
  }

  private void handleText(String message) {
    if (isStarted) {
      session.end(CloseReason.EXPECTED_AUDIO);
    } else if (!Protocol.isStart(message)) {
      session.end(CloseReason.EXPECTED_START);
    } else {
      isStarted = true;
      session.start();
    }
  }

  @Override
  public void onPing(WsSession webSocket, BufferData payload) {
    if (payload.available() > MAX_CONTROL_BYTES) {
      session.end(CloseReason.PROTOCOL_ERROR);
    } else {
      session.pong(payload);
    }
  }

  @Override
  public void onClose(WsSession webSocket, int status, String reason) {
    session.end(CloseReason.client(status));
  }

  /** Helidon calls this for a Close frame with a payload of one byte. */
  @Override
  public void onError(WsSession webSocket, Throwable error) {
    session.end(CloseReason.PROTOCOL_ERROR);
  }
}
