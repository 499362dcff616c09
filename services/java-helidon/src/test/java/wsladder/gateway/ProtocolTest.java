package wsladder.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import wsladder.gateway.Protocol.EchoedSettings;
import wsladder.gateway.Protocol.ErrorContext;
import wsladder.gateway.Protocol.Failure;
import wsladder.gateway.Protocol.Kind;
import wsladder.gateway.Protocol.Outcome;
import wsladder.gateway.Protocol.Span;

final class ProtocolTest {
  private static long nanoseconds(JsonNode milliseconds) {
    return Math.round(milliseconds.asDouble() * 1e6);
  }

  private static Outcome parse(JsonNode entry, Span span) {
    byte[] body = entry.get("body").asText().getBytes(StandardCharsets.UTF_8);
    return Recognition.parse(body, 200, span, entry.get("cpu_passes").asInt());
  }

  @Test
  void goldenFirstMessagesAreRecognized() throws IOException {
    for (JsonNode entry : Golden.list("client")) {
      if (entry.get("state").asText().equals("first") && entry.has("text")) {
        boolean start = entry.get("means").asText().equals("start");
        assertEquals(
            start, Protocol.isStart(entry.get("text").asText()), entry.get("name").asText());
      }
    }
  }

  @Test
  void randomTextIsNoStartMessage() {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    String characters = "{}\"type:start ,";
    for (int i = 0; i < 20_000; i++) {
      StringBuilder text = new StringBuilder();
      random
          .ints(random.nextInt(20), 0, characters.length())
          .forEach(index -> text.append(characters.charAt(index)));
      assertFalse(Protocol.isStart(text.toString()), text + ", seed " + seed);
    }
  }

  @Test
  void goldenInferenceResponsesAreParsed() throws IOException {
    for (JsonNode entry : Golden.list("inference")) {
      if (entry.get("status").asInt() == 200) {
        Outcome outcome = parse(entry, new Span(1, entry.get("frames").asInt()));
        String name = entry.get("name").asText();
        if (entry.get("means").asText().equals("partial")) {
          assertInstanceOf(Recognition.class, outcome, name);
        } else {
          Failure failure = assertInstanceOf(Failure.class, outcome, name);
          assertEquals(entry.get("kind").asText(), failure.kind().wire, name);
        }
      }
    }
  }

  @Test
  void invalidResponseIsAParseErrorAndNoException() {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    byte[] valid = FakeInference.response(Protocol.FRAME_BYTES, 4).getBytes(StandardCharsets.UTF_8);
    for (int i = 0; i < 20_000; i++) {
      byte[] broken = Arrays.copyOf(valid, 1 + random.nextInt(valid.length - 1));
      broken[random.nextInt(broken.length)] = (byte) random.nextInt();
      Outcome outcome = Recognition.parse(broken, 200, new Span(1, 1), 4);
      assertInstanceOf(Failure.class, outcome, "seed " + seed);
    }
  }

  @Test
  void partialsEqualGoldenBytes() throws IOException {
    for (JsonNode entry : Golden.list("partial")) {
      JsonNode of = entry.get("of");
      Span span = new Span(of.get("oldest_frame_seq").asLong(), of.get("frames").asInt());
      Recognition recognition = assertInstanceOf(Recognition.class, parse(of, span));
      EchoedSettings echo =
          new EchoedSettings(of.get("cpu_passes").asInt(), of.get("model_delay_ms").asLong());
      long lateness = nanoseconds(of.get("flush_lateness_ms"));
      assertEquals(entry.get("text").asText(), Protocol.partial(span, recognition, echo, lateness));
    }
  }

  @Test
  void errorsEqualGoldenBytes() throws IOException {
    for (JsonNode entry : Golden.list("error")) {
      JsonNode of = entry.get("of");
      Span span = new Span(of.get("oldest_frame_seq").asLong(), of.get("frames").asInt());
      JsonNode status = of.get("inference_status");
      Kind kind =
          Arrays.stream(Kind.values())
              .filter(one -> one.wire.equals(of.get("kind").asText()))
              .findFirst()
              .orElseThrow();
      Failure failure =
          new Failure(kind, status.isNull() ? null : status.asInt(), of.get("message").asText());
      JsonNode elapsed = of.get("inference_elapsed_ms");
      ErrorContext context =
          new ErrorContext(
              nanoseconds(of.get("oldest_age_ms")),
              nanoseconds(of.get("newest_age_ms")),
              nanoseconds(of.get("flush_lateness_ms")),
              elapsed.isNull() ? null : nanoseconds(elapsed),
              of.get("gateway_buffer_frames").asInt());
      assertEquals(entry.get("text").asText(), Protocol.error(span, failure, context));
    }
  }
}
