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
import wsladder.gateway.Protocol.Answer;
import wsladder.gateway.Protocol.Echo;
import wsladder.gateway.Protocol.Failure;
import wsladder.gateway.Protocol.Kind;
import wsladder.gateway.Protocol.Span;
import wsladder.gateway.Protocol.Wait;

final class ProtocolTest {
  private static long nanoseconds(JsonNode milliseconds) {
    return Math.round(milliseconds.asDouble() * 1e6);
  }

  private static Answer parse(JsonNode entry, Span span) {
    byte[] body = entry.get("body").asText().getBytes(StandardCharsets.UTF_8);
    return Recognition.parse(body, 200, span, entry.get("cpu_passes").asInt());
  }

  @Test
  void theFirstMessageIsUnderstoodAsTheGoldenMessagesSay() throws IOException {
    for (JsonNode entry : Golden.list("client")) {
      if (entry.get("state").asText().equals("first") && entry.has("text")) {
        boolean start = entry.get("means").asText().equals("start");
        assertEquals(
            start, Protocol.isStart(entry.get("text").asText()), entry.get("name").asText());
      }
    }
  }

  @Test
  void noTextButTheStartObjectIsAStart() {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    String letters = "{}\"type:start ,";
    for (int i = 0; i < 20_000; i++) {
      StringBuilder text = new StringBuilder();
      random
          .ints(random.nextInt(20), 0, letters.length())
          .forEach(letter -> text.append(letters.charAt(letter)));
      assertFalse(Protocol.isStart(text.toString()), text + ", seed " + seed);
    }
  }

  @Test
  void theInferenceIsUnderstoodAsTheGoldenMessagesSay() throws IOException {
    for (JsonNode entry : Golden.list("inference")) {
      if (entry.get("status").asInt() == 200) {
        Answer answer = parse(entry, new Span(1, entry.get("frames").asInt()));
        String name = entry.get("name").asText();
        if (entry.get("means").asText().equals("partial")) {
          assertInstanceOf(Recognition.class, answer, name);
        } else {
          Failure failure = assertInstanceOf(Failure.class, answer, name);
          assertEquals(entry.get("kind").asText(), failure.kind().wire, name);
        }
      }
    }
  }

  @Test
  void whatCanNotBeAnAnswerIsAParseErrorAndNoException() {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    byte[] answer = FakeInference.answer(Protocol.FRAME_BYTES, 4).getBytes(StandardCharsets.UTF_8);
    for (int i = 0; i < 20_000; i++) {
      byte[] broken = Arrays.copyOf(answer, 1 + random.nextInt(answer.length - 1));
      broken[random.nextInt(broken.length)] = (byte) random.nextInt();
      Answer understood = Recognition.parse(broken, 200, new Span(1, 1), 4);
      assertInstanceOf(Failure.class, understood, "seed " + seed);
    }
  }

  @Test
  void partialsAreTheGoldenOnesByteForByte() throws IOException {
    for (JsonNode entry : Golden.list("partial")) {
      JsonNode of = entry.get("of");
      Span span = new Span(of.get("oldest_frame_seq").asLong(), of.get("frames").asInt());
      Recognition answer = assertInstanceOf(Recognition.class, parse(of, span));
      Echo echo = new Echo(of.get("cpu_passes").asInt(), of.get("model_delay_ms").asLong());
      long lateness = nanoseconds(of.get("flush_lateness_ms"));
      assertEquals(entry.get("text").asText(), Protocol.partial(span, answer, echo, lateness));
    }
  }

  @Test
  void errorsAreTheGoldenOnesByteForByte() throws IOException {
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
      Wait wait =
          new Wait(
              nanoseconds(of.get("oldest_age_ms")),
              nanoseconds(of.get("newest_age_ms")),
              nanoseconds(of.get("flush_lateness_ms")),
              elapsed.isNull() ? null : nanoseconds(elapsed),
              of.get("gateway_buffer_frames").asInt());
      assertEquals(entry.get("text").asText(), Protocol.error(span, failure, wait));
    }
  }
}
