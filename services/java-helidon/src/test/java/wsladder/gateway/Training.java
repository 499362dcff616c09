package wsladder.gateway;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * A short run of the built gateway under load, which {@code build} starts to create the
 * ahead-of-time cache. The JVM records the classes that it loads and the methods that are hot, and
 * writes them into the cache when it exits.
 */
final class Training {
  private static final int SESSIONS = 40;
  private static final int ROUNDS = 60;
  private static final int FRAMES_PER_ROUND = 5;
  private static final long ROUND_MS = 100;
  private static final long WRITE_SECONDS = 240;

  private Training() {}

  /**
   * Runs the gateway with the java program {@code arguments[0]}. The working directory is the
   * service's folder.
   */
  public static void main(String[] arguments) throws Exception {
    try (FakeInference inference = new FakeInference()) {
      Process gateway = start(arguments[0], inference.url());
      try {
        load(address(gateway));
      } finally {
        // destroy() sends SIGTERM: the gateway drains and writes the cache.
        gateway.destroy();
      }
      if (!gateway.waitFor(WRITE_SECONDS, TimeUnit.SECONDS)) {
        gateway.destroyForcibly();
      }
      System.exit(gateway.exitValue());
    }
  }

  private static Process start(String java, String inference) throws IOException {
    ProcessBuilder builder =
        new ProcessBuilder(
            java,
            "@" + Path.of("java.options"),
            "-Xlog:all=error:stderr",
            "-XX:AOTCacheOutput=target/java-helidon.aot",
            "-jar",
            "target/java-helidon.jar",
            "--port=0",
            "--inference-url=" + inference,
            "--flush-interval-ms=200",
            "--flush-phase-jitter-ms=200");
    return builder.redirectError(ProcessBuilder.Redirect.DISCARD).start();
  }

  private static String address(Process gateway) throws IOException {
    BufferedReader out = gateway.inputReader(StandardCharsets.UTF_8);
    String ready = out.readLine();
    String key = "\"address\":\"";
    int begin = ready.indexOf(key) + key.length();
    return ready.substring(begin, ready.indexOf('"', begin));
  }

  private static void load(String address) throws InterruptedException {
    List<WebSocket> sessions = new ArrayList<>();
    try (HttpClient client = HttpClient.newHttpClient()) {
      for (int i = 0; i < SESSIONS; i++) {
        WebSocket session =
            client
                .newWebSocketBuilder()
                .buildAsync(URI.create("ws://" + address + "/ws/stt"), new WebSocket.Listener() {})
                .join();
        session.sendText("{\"type\":\"start\"}", true).join();
        sessions.add(session);
      }
      for (int round = 0; round < ROUNDS; round++) {
        for (WebSocket session : sessions) {
          for (int i = 0; i < FRAMES_PER_ROUND; i++) {
            session.sendBinary(ByteBuffer.allocate(Protocol.FRAME_BYTES), true).join();
          }
        }
        Thread.sleep(ROUND_MS);
      }
      sessions.forEach(session -> session.sendClose(WebSocket.NORMAL_CLOSURE, "").join());
    }
  }
}
