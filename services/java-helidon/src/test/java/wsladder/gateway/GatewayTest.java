package wsladder.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/**
 * Tests of the gateway as a process with its real command line, in front of an inference that
 * responds at once.
 */
final class GatewayTest {
  private static final long TIMEOUT_SECONDS = 60;

  /** A client that collects the texts it gets, and its Close frame as "close CODE REASON". */
  private static final class Client implements WebSocket.Listener {
    private final BlockingQueue<String> received = new LinkedBlockingQueue<>();

    @Override
    public CompletionStage<?> onText(WebSocket socket, CharSequence text, boolean last) {
      received.add(text.toString());
      socket.request(1);
      return null;
    }

    @Override
    public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
      received.add("close " + code + " " + reason);
      return null;
    }

    String next() throws InterruptedException {
      String message = received.poll(TIMEOUT_SECONDS, TimeUnit.SECONDS);
      return message == null ? "nothing" : message;
    }
  }

  private static Process start(String inference) throws Exception {
    String java = System.getProperty("java.home") + "/bin/java";
    ProcessBuilder builder =
        new ProcessBuilder(
            java,
            "@java.options",
            // This file isn't a cache; the JVM must report that on standard error only.
            "-XX:AOTCache=pom.xml",
            "-cp",
            System.getProperty("java.class.path"),
            "wsladder.gateway.Main",
            "--port=0",
            "--flush-interval-ms=200",
            "--inference-url=" + inference);
    return builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
  }

  @Test
  void sessionGetsPartialAndIsDrainedAndOnlyReadyLineIsPrinted() throws Exception {
    try (FakeInference inference = new FakeInference();
        HttpClient http = HttpClient.newHttpClient()) {
      Process gateway = start(inference.url());
      try {
        BufferedReader out = gateway.inputReader(StandardCharsets.UTF_8);
        String ready = out.readLine();
        assertTrue(ready.startsWith("{\"event\":\"ready\",\"address\":\"127.0.0.1:"), ready);
        String address = ready.split("\"", -1)[7];
        Client client = new Client();
        WebSocket socket =
            http.newWebSocketBuilder()
                .buildAsync(URI.create("ws://" + address + "/ws/stt"), client)
                .join();
        socket.sendText("{\"type\":\"start\"}", true).join();
        socket.sendBinary(ByteBuffer.allocate(Protocol.FRAME_BYTES), true).join();
        String partial = client.next();
        assertTrue(partial.startsWith("{\"type\":\"partial\",\"oldest_frame_seq\":1,"), partial);
        // Unlike Process.destroy(), this leaves the process' output open.
        gateway.toHandle().destroy();
        assertEquals("close 1001 gateway stops", client.next());
        assertTrue(gateway.waitFor(TIMEOUT_SECONDS, TimeUnit.SECONDS));
        assertEquals(0, gateway.exitValue());
        assertEquals(List.of(), out.lines().toList());
      } finally {
        gateway.destroyForcibly();
      }
    }
  }

  @Test
  void invalidSettingExitsWithTwoAndIsNamed() throws Exception {
    String java = System.getProperty("java.home") + "/bin/java";
    Process gateway =
        new ProcessBuilder(
                java,
                "-cp",
                System.getProperty("java.class.path"),
                "wsladder.gateway.Main",
                "--flush-interval-ms=soon")
            .start();
    String standardError =
        new String(gateway.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(2, gateway.waitFor());
    assertTrue(standardError.contains("--flush-interval-ms"), standardError);
  }
}
