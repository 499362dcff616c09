import io.helidon.common.buffers.BufferData;
import io.helidon.webserver.WebServer;
import io.helidon.webserver.websocket.WsRouting;
import io.helidon.websocket.WsListener;
import io.helidon.websocket.WsSession;

/** Sends back what it gets, piece by piece. Its argument is the port. */
final class Main {
  public static void main(String[] arguments) {
    WebServer.builder()
        .host("127.0.0.1")
        .port(Integer.parseInt(arguments[0]))
        .addRouting(WsRouting.builder().endpoint("/", Echo::new))
        .build()
        .start();
  }

  private static final class Echo implements WsListener {
    @Override
    public void onMessage(WsSession session, String text, boolean last) {
      session.send(text, last);
    }

    @Override
    public void onMessage(WsSession session, BufferData buffer, boolean last) {
      session.send(buffer, last);
    }
  }

  private Main() {}
}
