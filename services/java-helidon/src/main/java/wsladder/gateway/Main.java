package wsladder.gateway;

import com.sun.net.httpserver.HttpServer;
import io.helidon.webserver.WebServer;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.LogManager;
import wsladder.gateway.Config.ConfigException;

/**
 * Speech-to-text gateway on Helidon SE and OkHttp. {@code services/README.md} ("Gateways") is its
 * contract.
 *
 * <p>{@code Main} parses the settings ({@code Config}), starts the gateway and prints the ready
 * line. {@code Server} serves HTTP and upgrades connections. {@code Gateway} holds the state that
 * sessions share. {@code Session} serves one client. Its {@code ReaderThread} reads the socket
 * through {@code SocketReader} and {@code PacedContext}, {@code Listener} checks the messages,
 * {@code Inbox} keeps the audio, {@code Schedule} computes when ticks are due, {@code
 * InferenceRequests} sends batches through {@code Inference}, {@code Protocol} and {@code
 * Recognition} define the messages, and {@code Outbox} holds bytes that are not written yet. {@code
 * CloseReason} is why a session ended. {@code Clock} fires the alarms of sessions. {@code Books}
 * counts, and {@code Metrics} serves the counters in the format of {@code Exposition}.
 */
public final class Main {
  static final String NAME = "java-helidon";
  static final String VERSION = "0.1.0";

  private static final int BAD_USAGE = 2;

  /** Time for all sessions together to end after SIGTERM. */
  private static final long DRAIN_MS = 4_000;

  private static final long DRAIN_POLL_MS = 10;

  private Main() {}

  /**
   * Starts the gateway, which serves until SIGTERM; exits with status 2 if a setting is invalid.
   */
  public static void main(String[] arguments) throws IOException {
    // Only the ready line may be on standard output; anything that a library prints goes to
    // standard error.
    PrintStream out = System.out;
    System.setOut(System.err);
    List<String> flags = List.of(arguments);
    if (flags.contains("--version")) {
      out.printf("%s %s (Java %s)%n", NAME, VERSION, Runtime.version());
      return;
    }
    if (flags.contains("--help")) {
      out.print(Config.help());
      return;
    }
    try {
      run(Config.parse(flags, System.getenv()), out);
    } catch (ConfigException e) {
      System.err.println(NAME + ": " + e.getMessage());
      System.exit(BAD_USAGE);
    }
  }

  private static void run(Config config, PrintStream out) throws IOException {
    LogManager.getLogManager().getLogger("").setLevel(Level.WARNING);
    if (config.workerThreads() > 0) {
      // The JVM reads these properties when the first virtual thread starts.
      String threads = Integer.toString(config.workerThreads());
      System.setProperty("jdk.virtualThreadScheduler.parallelism", threads);
      System.setProperty("jdk.virtualThreadScheduler.maxPoolSize", threads);
    }
    Books books = new Books(config.maxConnections());
    Gateway gateway = Gateway.of(config, books);
    gateway.clock().start();
    WebServer server = Server.of(gateway).start();
    HttpServer metrics =
        Metrics.serve(new InetSocketAddress(config.host(), config.metricsPort()), books);
    // After SIGTERM the JVM exits with status 143 unless a hook ends the process first.
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(gateway), "stop"));
    out.println(ready(config.host(), server.port(), metrics.getAddress().getPort()));
    out.flush();
  }

  private static String ready(String host, int port, int metricsPort) {
    String name = host.contains(":") ? "[" + host + "]" : host;
    return Protocol.json(
        line -> {
          line.writeStringField("event", "ready");
          line.writeStringField("address", name + ":" + port);
          line.writeStringField("metrics_address", name + ":" + metricsPort);
          line.writeNumberField("pid", ProcessHandle.current().pid());
        });
  }

  /** Drains all sessions, at most for {@code DRAIN_MS}, and ends the process with status 0. */
  private static void stop(Gateway gateway) {
    gateway.books().stopAccepting();
    gateway.sessions().forEach(Session::drain);
    long deadline = System.nanoTime() + DRAIN_MS * 1_000_000;
    try {
      while (!gateway.sessions().isEmpty() && System.nanoTime() - deadline < 0) {
        Thread.sleep(DRAIN_POLL_MS);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    Runtime.getRuntime().halt(0);
  }
}
