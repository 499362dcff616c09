package wsladder.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;

import java.util.List;
import java.util.Map;
import mockwebserver3.MockResponse;
import mockwebserver3.QueueDispatcher;
import mockwebserver3.RecordedRequest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import wsladder.gateway.Inbox.Batch;
import wsladder.gateway.Inbox.TakenFrames;
import wsladder.gateway.Protocol.Failure;
import wsladder.gateway.Protocol.Kind;
import wsladder.gateway.Protocol.Outcome;
import wsladder.gateway.Protocol.Span;

final class InferenceTest {
  private static final Batch BATCH =
      new Batch(new TakenFrames(new Span(1, 2), 0, 0), new byte[2000], 40, 1280);

  private static Outcome execute(String url, String timeoutMs) throws Exception {
    Config config =
        Config.parse(
            List.of("--inference-url", url, "--inference-timeout-ms", timeoutMs), Map.of());
    Inference.Connection connection = new Inference(config).assignConnection();
    return connection.execute(connection.prepare(BATCH), BATCH);
  }

  @Test
  void batchIsSentOverHttp2AndResponseIsParsed() throws Exception {
    try (FakeInference inference = new FakeInference()) {
      assertInstanceOf(Recognition.class, execute(inference.url(), "5000"));
      RecordedRequest request = inference.server().takeRequest();
      assertEquals("HTTP/2", request.getVersion());
      assertEquals("POST /infer HTTP/2", request.getRequestLine());
      assertEquals("1280", request.getHeaders().get("content-length"));
      assertEquals("4", request.getHeaders().get("x-cpu-passes"));
    }
  }

  @ParameterizedTest
  @CsvSource({"429, HTTP_429", "503, HTTP_5XX", "404, HTTP_5XX", "200, PARSE_ERROR"})
  void errorStatusOrInvalidBodyIsAFailure(int status, Kind kind) throws Exception {
    try (FakeInference inference = new FakeInference()) {
      QueueDispatcher queue = new QueueDispatcher();
      queue.enqueue(new MockResponse.Builder().code(status).body("no").build());
      inference.server().setDispatcher(queue);
      Failure failure = assertInstanceOf(Failure.class, execute(inference.url(), "5000"));
      assertEquals(kind, failure.kind());
      assertEquals(status, failure.status());
    }
  }

  @Test
  void missingResponseIsATimeout() throws Exception {
    try (FakeInference inference = new FakeInference()) {
      inference.server().setDispatcher(new QueueDispatcher());
      Failure failure = assertInstanceOf(Failure.class, execute(inference.url(), "200"));
      assertEquals(new Failure(Kind.TIMEOUT, null, "no answer within 200 ms"), failure);
    }
  }

  @Test
  void unreachableInferenceIsAConnectionReset() throws Exception {
    FakeInference inference = new FakeInference();
    String url = inference.url();
    inference.close();
    Failure failure = assertInstanceOf(Failure.class, execute(url, "5000"));
    assertEquals(Kind.CONNECTION_RESET, failure.kind());
  }
}
