package wsladder.gateway;

import java.io.IOException;
import java.util.List;
import mockwebserver3.Dispatcher;
import mockwebserver3.MockResponse;
import mockwebserver3.MockWebServer;
import mockwebserver3.RecordedRequest;
import okhttp3.Protocol;

/** An inference over h2c that responds to every batch at once, with valid values. */
final class FakeInference implements AutoCloseable {
  private final MockWebServer server = new MockWebServer();

  FakeInference() throws IOException {
    server.setProtocols(List.of(Protocol.H2_PRIOR_KNOWLEDGE));
    server.setDispatcher(
        new Dispatcher() {
          @Override
          public MockResponse dispatch(RecordedRequest request) {
            return new MockResponse.Builder().body(response(request)).build();
          }
        });
    server.start();
  }

  /** Returns the response to a request with {@code audioBytes} bytes of audio. */
  static String response(long audioBytes, int cpuPasses) {
    return """
        {"rms":2425.5,"zero_crossings":7,"checksum":1,"samples":%d,"transcript":"now","audio_bytes":%d}\
        """
        .formatted(cpuPasses * audioBytes / 2, audioBytes);
  }

  private static String response(RecordedRequest request) {
    String passes = request.getHeaders().get("x-cpu-passes");
    return response(request.getBodySize(), passes == null ? 0 : Integer.parseInt(passes));
  }

  MockWebServer server() {
    return server;
  }

  String url() {
    return "http://127.0.0.1:" + server.getPort();
  }

  @Override
  public void close() {
    server.close();
  }
}
