package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import io.helidon.http.HeaderNames;
import io.helidon.http.Headers;
import io.helidon.http.HttpPrologue;
import io.helidon.http.Method;
import io.helidon.http.RequestException;
import io.helidon.http.Status;
import io.helidon.http.WritableHeaders;
import io.helidon.webserver.ConnectionContext;
import io.helidon.webserver.WebServer;
import io.helidon.webserver.http.Handler;
import io.helidon.webserver.http.ServerRequest;
import io.helidon.webserver.http.ServerResponse;
import io.helidon.webserver.http1.Http1Config;
import io.helidon.webserver.http1.Http1ConnectionSelector;
import io.helidon.webserver.spi.ServerConnection;
import io.helidon.webserver.websocket.WsConfig;
import io.helidon.webserver.websocket.WsUpgrader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The port for clients: Helidon serves HTTP, and {@code Upgrader} upgrades the handshakes that the
 * contract allows.
 */
final class Server {
  static final String PATH = "/ws/stt";

  /** Length of the listen queue: thousands of clients may connect at once. */
  private static final int BACKLOG = 8192;

  /** Decoded length of a WebSocket key, in bytes (RFC 6455, section 4.1). */
  private static final int KEY_BYTES = 16;

  /** The response to a request that is not upgraded. */
  record Refusal(Status status, String message) {}

  private Server() {}

  /** Returns a configured server that is not started yet. */
  static WebServer of(Gateway gateway) {
    WsConfig frames = WsConfig.builder().maxFrameLength(Protocol.MAX_MESSAGE_BYTES).build();
    Upgrader upgrader = new Upgrader(frames, gateway);
    return WebServer.builder()
        .host(gateway.config().host())
        .port(gateway.config().port())
        .backlog(BACKLOG)
        .shutdownHook(false)
        .connectionOptions(options -> options.tcpNoDelay(true))
        .protocolsDiscoverServices(false)
        .addProtocol(frames)
        .addConnectionSelector(
            Http1ConnectionSelector.builder()
                .config(Http1Config.create())
                // Helidon compares the header case-sensitively.
                .upgraders(Map.of("websocket", upgrader, "WebSocket", upgrader))
                .build())
        .routing(
            routing ->
                routing
                    .any("/health", onlyGet(Server::health))
                    .any(PATH, onlyGet((request, response) -> refuse(gateway, request, response))))
        .build();
  }

  private static Handler onlyGet(Handler handler) {
    return (request, response) -> {
      if (request.prologue().method().equals(Method.GET)) {
        handler.handle(request, response);
      } else {
        response.status(Status.METHOD_NOT_ALLOWED_405).header(HeaderNames.ALLOW, "GET").send();
      }
    };
  }

  private static void health(ServerRequest request, ServerResponse response) {
    response
        .header(HeaderNames.CONTENT_TYPE, "application/json")
        .send("{\"ok\":true,\"runtime\":\"%s\"}".formatted(Main.NAME));
  }

  /** Responds to a request for the WebSocket's path that the upgrader left to the routes. */
  private static void refuse(Gateway gateway, ServerRequest request, ServerResponse response) {
    Refusal refusal =
        check(request.headers())
            .orElse(new Refusal(Status.BAD_REQUEST_400, "this request can't be upgraded"));
    gateway.books().update(counts -> counts.reject("handshake"));
    response
        .status(refusal.status())
        .header(HeaderNames.UPGRADE, "websocket")
        .header(WsUpgrader.WS_VERSION, "13")
        .send(refusal.message());
  }

  /** Returns the refusal of an invalid handshake; empty if the handshake is valid. */
  static Optional<Refusal> check(Headers headers) {
    if (!hasToken(headers, "Upgrade", "websocket") || !hasToken(headers, "Connection", "upgrade")) {
      return Optional.of(new Refusal(Status.UPGRADE_REQUIRED_426, "Upgrade: websocket is needed"));
    }
    if (!header(headers, "Sec-WebSocket-Version").equals("13")) {
      return Optional.of(
          new Refusal(Status.UPGRADE_REQUIRED_426, "Sec-WebSocket-Version must be 13"));
    }
    if (!isKey(header(headers, "Sec-WebSocket-Key"))) {
      return Optional.of(
          new Refusal(Status.BAD_REQUEST_400, "Sec-WebSocket-Key must be 16 bytes in base64"));
    }
    return Optional.empty();
  }

  private static String header(Headers headers, String name) {
    return headers.first(HeaderNames.create(name)).orElse("");
  }

  private static boolean hasToken(Headers headers, String name, String token) {
    return headers.values(HeaderNames.create(name)).stream()
        .flatMap(value -> Stream.of(value.split(",", -1)))
        .anyMatch(element -> element.strip().toLowerCase(Locale.ROOT).equals(token));
  }

  private static boolean isKey(String key) {
    try {
      return Base64.getDecoder().decode(key).length == KEY_BYTES;
    } catch (IllegalArgumentException e) {
      return false;
    }
  }

  /** Upgrades a connection and creates its session. */
  private static final class Upgrader extends WsUpgrader {
    private final Gateway gateway;

    private Upgrader(WsConfig config, Gateway gateway) {
      super(config);
      this.gateway = gateway;
    }

    /**
     * Upgrades a valid handshake. Returns {@code null} for any other request, which the routes then
     * serve. Throws a 503 if the gateway is full or draining.
     */
    @Override
    public ServerConnection upgrade(
        ConnectionContext socket, HttpPrologue prologue, WritableHeaders<?> headers) {
      boolean isHandshake =
          prologue.uriPath().path().equals(PATH)
              && prologue.method().equals(Method.GET)
              && check(headers).isEmpty();
      if (!isHandshake) {
        return null;
      }
      switch (gateway.books().admit()) {
        case ADMITTED -> {}
        case FULL -> throw unavailable("too many connections");
        case DRAINING -> throw unavailable("the gateway stops");
      }
      String key = header(headers, "Sec-WebSocket-Key");
      String response = SWITCHING_PROTOCOL_PREFIX + hash(socket, key) + SWITCHING_PROTOCOLS_SUFFIX;
      Session session = new Session(gateway, socket, prologue, WritableHeaders.create(), key);
      try {
        socket
            .dataWriter()
            .writeNow(BufferData.create(response.getBytes(StandardCharsets.US_ASCII)));
      } catch (RuntimeException e) {
        session.endAfterFailedHandshake();
        throw e;
      }
      return session;
    }

    private static RequestException unavailable(String message) {
      return RequestException.builder()
          .status(Status.SERVICE_UNAVAILABLE_503)
          .setKeepAlive(false)
          .message(message)
          .build();
    }
  }
}
