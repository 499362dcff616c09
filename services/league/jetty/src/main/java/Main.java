import java.nio.ByteBuffer;
import java.util.List;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandler;
import org.eclipse.jetty.websocket.api.Callback;
import org.eclipse.jetty.websocket.api.Session;
import org.eclipse.jetty.websocket.server.WebSocketUpgradeHandler;

/** Sends back what it gets. Its argument is the port. */
public final class Main {
  public static void main(String[] arguments) throws Exception {
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(arguments[0]));
    server.addConnector(connector);
    ContextHandler context = new ContextHandler("/");
    context.setHandler(
        WebSocketUpgradeHandler.from(
            server,
            context,
            container ->
                container.addMapping(
                    "/",
                    (request, response, callback) -> {
                      // No compression: the client's offer is left out of the answer.
                      response.setExtensions(List.of());
                      return new Echo();
                    })));
    server.setHandler(context);
    server.start();
  }

  /** One connection. */
  public static final class Echo extends Session.Listener.AbstractAutoDemanding {
    @Override
    public void onWebSocketText(String message) {
      getSession().sendText(message, Callback.NOOP);
    }

    @Override
    public void onWebSocketBinary(ByteBuffer payload, Callback callback) {
      getSession().sendBinary(payload, callback);
    }
  }

  private Main() {}
}
