package wsladder.gateway;

import com.fasterxml.jackson.core.JsonGenerator;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import wsladder.gateway.Books.Counts;
import wsladder.gateway.Protocol.Kind;

/**
 * The metrics port: {@code /healthz}, {@code /readyz}, {@code /stats}, {@code /metrics}. The JDK's
 * HTTP server responds on its own platform thread, so it doesn't wait for a carrier thread of the
 * sessions.
 */
final class Metrics {
  private static final String TEXT = "text/plain; version=0.0.4";
  private static final int BACKLOG = 128;

  /** Size of a memory page, the same on every Linux that this runs on. */
  private static final long PAGE_BYTES = 4096;

  private final Books books;
  private final long startedAt = System.nanoTime();

  Metrics(Books books) {
    this.books = books;
  }

  /** Starts the server on {@code address}. It serves until the process ends. */
  static HttpServer serve(InetSocketAddress address, Books books) throws IOException {
    // Without this a small response waits for the client's acknowledgement.
    System.setProperty("sun.net.httpserver.nodelay", "true");
    Metrics metrics = new Metrics(books);
    HttpServer server = HttpServer.create(address, BACKLOG);
    server.createContext("/", exchange -> respond(exchange, "/", 404, TEXT, "not found\n"));
    server.createContext("/healthz", exchange -> respond(exchange, "/healthz", 200, TEXT, "ok\n"));
    server.createContext("/readyz", metrics::ready);
    server.createContext(
        "/stats",
        exchange -> respond(exchange, "/stats", 200, "application/json", metrics.stats()));
    server.createContext(
        "/metrics", exchange -> respond(exchange, "/metrics", 200, TEXT, metrics.prometheus()));
    server.start();
    return server;
  }

  private void ready(HttpExchange exchange) throws IOException {
    if (books.isAccepting()) {
      respond(exchange, "/readyz", 200, TEXT, "ready\n");
    } else {
      respond(exchange, "/readyz", 503, TEXT, "stopping\n");
    }
  }

  /**
   * Sends a response. The JDK matches contexts by prefix, so a request for a longer path than
   * {@code path} gets 404.
   */
  private static void respond(
      HttpExchange exchange, String path, int status, String type, String text) throws IOException {
    boolean isExactPath = exchange.getRequestURI().getPath().equals(path);
    byte[] body = (isExactPath ? text : "not found\n").getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().set("Content-Type", type);
    exchange.sendResponseHeaders(isExactPath ? status : 404, body.length);
    try (OutputStream out = exchange.getResponseBody()) {
      out.write(body);
    }
  }

  /** Returns the JSON body of {@code /stats}. */
  String stats() {
    Counts counts = books.snapshot();
    return Protocol.json(
        out -> {
          out.writeStringField("service", Main.NAME);
          out.writeStringField("version", Main.VERSION);
          out.writeNumberField("uptime_seconds", (System.nanoTime() - startedAt) / 1e9);
          out.writeObjectFieldStart("connections");
          out.writeNumberField("accepted", counts.accepted);
          out.writeNumberField("open", counts.open);
          writeNamed(out, "closed", counts.closed);
          writeNamed(out, "rejected", counts.rejected);
          out.writeEndObject();
          out.writeObjectFieldStart("messages");
          out.writeNumberField("received", counts.received);
          out.writeNumberField("consumed", counts.consumed);
          out.writeNumberField("delivered", counts.delivered);
          writeNamed(out, "dropped", counts.dropped);
          out.writeNumberField("queued", counts.waiting + counts.inFlight);
          out.writeNumberField("malformed", 0);
          out.writeNumberField("sent", counts.sent);
          writeNamed(out, "send_dropped", Map.of());
          out.writeEndObject();
          out.writeObjectFieldStart("bytes");
          out.writeNumberField("received", counts.bytesReceived);
          out.writeNumberField("sent", counts.bytesSent);
          out.writeEndObject();
          out.writeNullField("application");
          out.writeObjectFieldStart("inference");
          out.writeNumberField("requests", counts.requests);
          out.writeNumberField("answered", counts.answered);
          writeNamed(out, "failed", counts.failed);
          out.writeNumberField("abandoned", counts.abandoned);
          out.writeNumberField("in_flight", counts.requestsInFlight);
          out.writeNumberField("ticks_skipped", counts.ticksSkipped);
          out.writeNumberField("buffered_bytes", counts.bufferedBytes());
          out.writeEndObject();
        });
  }

  private static void writeNamed(JsonGenerator out, String field, Map<String, Long> counts)
      throws IOException {
    out.writeObjectFieldStart(field);
    for (Map.Entry<String, Long> entry : counts.entrySet()) {
      out.writeNumberField(entry.getKey(), entry.getValue());
    }
    out.writeEndObject();
  }

  /** Returns the Prometheus text body of {@code /metrics}. */
  String prometheus() {
    Counts counts = books.snapshot();
    Exposition text = new Exposition();
    messages(text, counts);
    connections(text, counts);
    inference(text, counts);
    ticks(text, counts);
    long resident = residentBytes();
    if (resident >= 0) {
      text.gauge("service_process_resident_bytes", "Memory of the process", resident);
    }
    return text.toString();
  }

  private static void messages(Exposition text, Counts counts) {
    text.counter("service_messages_received_total", "Complete data messages", counts.received);
    text.counter("service_messages_consumed_total", "Start messages", counts.consumed);
    text.counter(
        "service_messages_delivered_total", "Frames answered by a partial", counts.delivered);
    text.counters(
        "service_messages_dropped_total", "Frames without a partial", "reason", counts.dropped);
    text.gauge(
        "service_messages_queued",
        "Frames that wait or are in flight",
        counts.waiting + counts.inFlight);
    text.counter("service_messages_malformed_total", "Text passed on that was no JSON", 0);
    text.counter("service_messages_sent_total", "Partials and errors", counts.sent);
    text.counters("service_messages_send_dropped_total", "Messages not sent", "reason", Map.of());
    text.counter(
        "service_bytes_received_total", "WebSocket bytes read from sockets", counts.bytesReceived);
    text.counter(
        "service_bytes_sent_total", "WebSocket bytes written to sockets", counts.bytesSent);
  }

  private static void connections(Exposition text, Counts counts) {
    text.counter("service_connections_accepted_total", "Connections upgraded", counts.accepted);
    text.gauge("service_connections_open", "Connections open now", counts.open);
    text.counters(
        "service_connections_closed_total", "Connections that ended", "reason", counts.closed);
    text.counters(
        "service_connections_rejected_total", "Connections refused", "reason", counts.rejected);
  }

  private static void inference(Exposition text, Counts counts) {
    text.counter("service_inference_requests_total", "Requests begun", counts.requests);
    text.counter(
        "service_inference_answered_total",
        "Requests whose answer became a partial",
        counts.answered);
    // All kinds are present from the start, so that a rate over them has a first value.
    Map<String, Long> failed = new TreeMap<>();
    for (Kind kind : Kind.values()) {
      if (kind != Kind.OVERFLOW) {
        failed.put(kind.wire, counts.failed.getOrDefault(kind.wire, 0L));
      }
    }
    text.counters("service_inference_failed_total", "Requests that failed", "kind", failed);
    text.counter(
        "service_inference_abandoned_total",
        "Requests whose connection ended first",
        counts.abandoned);
    text.gauge("service_inference_in_flight", "Requests in flight now", counts.requestsInFlight);
    text.gauge(
        "service_inference_in_flight_per_connection_max",
        "The most requests that were ever in flight for one connection",
        counts.inFlightPerConnectionMax);
    text.gauge(
        "service_buffered_bytes", "Audio held, waiting or in flight", counts.bufferedBytes());
  }

  private static void ticks(Exposition text, Counts counts) {
    Map<String, Long> outcomes = new TreeMap<>();
    outcomes.put("flushed", counts.ticksFlushed);
    outcomes.put("skipped", counts.ticksSkipped);
    outcomes.put("empty", counts.ticksEmpty);
    text.counters(
        "service_flush_ticks_total", "Flush ticks by what they found", "outcome", outcomes);
    text.histogram(
        "service_flush_lateness_seconds",
        "How late flush ticks ran",
        Books.LATENESS_BOUNDS,
        counts.lateness,
        counts.latenessSumNanos / 1e9);
  }

  /** Returns the resident memory of this process; -1 if {@code /proc} can't be read. */
  private static long residentBytes() {
    try {
      String[] pages = Files.readString(Path.of("/proc/self/statm")).split(" ", -1);
      return Long.parseLong(pages[1]) * PAGE_BYTES;
    } catch (IOException e) {
      return -1;
    }
  }
}
