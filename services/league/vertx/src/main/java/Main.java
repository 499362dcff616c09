import io.vertx.core.Vertx;
import io.vertx.core.http.HttpServerOptions;

/** Sends back what it gets. Its argument is the port. */
final class Main {
  public static void main(String[] arguments) {
    HttpServerOptions options =
        new HttpServerOptions()
            .setHost("127.0.0.1")
            .setPort(Integer.parseInt(arguments[0]))
            .setPerMessageWebSocketCompressionSupported(false)
            .setPerFrameWebSocketCompressionSupported(false);
    Vertx.vertx()
        .createHttpServer(options)
        .webSocketHandler(
            socket -> {
              socket.textMessageHandler(socket::writeTextMessage);
              socket.binaryMessageHandler(socket::writeBinaryMessage);
            })
        .listen()
        .onFailure(
            error -> {
              System.err.println(error);
              System.exit(1);
            });
  }

  private Main() {}
}
