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
  private boolean started;

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
    boolean whole = last && binary == null && text == null;
    if (whole && started && payload.available() == Protocol.FRAME_BYTES) {
      session.frame(payload);
      return;
    }
    if (text != null) {
      session.end(End.BROKEN_RULE);
      return;
    }
    if (binary == null) {
      binary = new ByteArrayOutputStream();
    }
    if (binary.size() + payload.available() > Protocol.MAX_MESSAGE_BYTES) {
      session.end(End.TOO_BIG);
      return;
    }
    binary.writeBytes(payload.readBytes());
    if (last) {
      byte[] message = binary.toByteArray();
      binary = null;
      binaryMessage(message);
    }
  }

  private void binaryMessage(byte[] message) {
    if (!started) {
      session.end(End.NO_START);
    } else if (message.length != Protocol.FRAME_BYTES) {
      session.end(End.NO_FRAME);
    } else {
      session.frame(BufferData.create(message));
    }
  }

  @Override
  public void onMessage(WsSession webSocket, String part, boolean last) {
    if (binary != null) {
      session.end(End.BROKEN_RULE);
      return;
    }
    if (text == null) {
      text = new StringBuilder();
    }
    if (text.length() + part.length() > Protocol.MAX_MESSAGE_BYTES) {
      session.end(End.TOO_BIG);
      return;
    }
    text.append(part);
    if (last) {
      String message = text.toString();
      text = null;
      textMessage(message);
    }
  }

  private void textMessage(String message) {
    if (started) {
      session.end(End.NO_AUDIO);
    } else if (!Protocol.isStart(message)) {
      session.end(End.NO_START);
    } else {
      started = true;
      session.start();
    }
  }

  @Override
  public void onPing(WsSession webSocket, BufferData payload) {
    if (payload.available() > MAX_CONTROL_BYTES) {
      session.end(End.BROKEN_RULE);
    } else {
      session.pong(payload);
    }
  }

  @Override
  public void onClose(WsSession webSocket, int status, String reason) {
    session.end(End.client(status));
  }

  /** Helidon calls this for a Close frame with a payload of one byte. */
  @Override
  public void onError(WsSession webSocket, Throwable error) {
    session.end(End.BROKEN_RULE);
  }
}
