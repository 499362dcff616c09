package wsladder.gateway;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;

/**
 * The messages on the wire: the client's start message, the two messages that a client gets
 * (partial and error), and the kinds of failures. It does no I/O.
 */
final class Protocol {
  /** Bytes of one frame of audio: 20 ms of 16 kHz mono with 16 bits. */
  static final int FRAME_BYTES = 640;

  /** Samples of one frame of audio. */
  static final int FRAME_SAMPLES = 320;

  /** Longest data message that a client may send, in bytes. */
  static final int MAX_MESSAGE_BYTES = 64 << 10;

  static final JsonFactory JSON =
      JsonFactory.builder()
          .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
          .disable(JsonWriteFeature.WRITE_HEX_UPPER_CASE)
          .build();

  private Protocol() {}

  /** Consecutive frames, from number {@code oldest} on; {@code frames} is at least 1. */
  record Span(long oldest, int frames) {
    long newest() {
      return oldest + frames - 1;
    }

    int audioBytes() {
      return frames * FRAME_BYTES;
    }
  }

  /** Why frames got no partial: the {@code kind} of an error. */
  enum Kind {
    OVERFLOW("overflow", "websocket_receive"),
    TIMEOUT("timeout", "inference_request"),
    CONNECTION_RESET("connection_reset", "inference_request"),
    HTTP_429("http_429", "inference_request"),
    /** Any other status but 2xx. The name is the protocol's. */
    HTTP_5XX("http_5xx", "inference_request"),
    PARSE_ERROR("parse_error", "inference_response_parse");

    /** The name of the kind on the wire and in the books. */
    final String wire;

    private final String stage;

    Kind(String wire, String stage) {
      this.wire = wire;
      this.stage = stage;
    }

    private boolean isRetryable(Integer status) {
      return switch (this) {
        case TIMEOUT, CONNECTION_RESET, HTTP_429 -> true;
        case HTTP_5XX -> status != null && status >= 500 && status < 600;
        case OVERFLOW, PARSE_ERROR -> false;
      };
    }
  }

  /** The outcome of a batch. */
  sealed interface Outcome permits Recognition, Failure {}

  /**
   * The reason why frames got no partial.
   *
   * @param status HTTP status of the inference's response; {@code null} if there was none
   */
  record Failure(Kind kind, Integer status, String message) implements Outcome {}

  /** The settings that each partial repeats. */
  record EchoedSettings(int cpuPasses, long modelDelayMs) {}

  /**
   * What an error message says about the time of the failure. Times are in nanoseconds.
   *
   * @param inferenceElapsed time since the request began; {@code null} if there was no request
   * @param bufferedFrames number of frames that wait now
   */
  record ErrorContext(
      long oldestAge,
      long newestAge,
      long flushLateness,
      Long inferenceElapsed,
      int bufferedFrames) {}

  /** Whether {@code text} is exactly the object {@code {"type":"start"}}. */
  static boolean isStart(String text) {
    try (JsonParser parser = JSON.createParser(text)) {
      return parser.nextToken() == JsonToken.START_OBJECT
          && parser.nextToken() == JsonToken.FIELD_NAME
          && parser.currentName().equals("type")
          && parser.nextToken() == JsonToken.VALUE_STRING
          && parser.getText().equals("start")
          && parser.nextToken() == JsonToken.END_OBJECT
          && parser.nextToken() == null;
    } catch (IOException e) {
      return false;
    }
  }

  /** Returns the partial that covers {@code span}; {@code flushLateness} is in nanoseconds. */
  static String partial(
      Span span, Recognition recognition, EchoedSettings echo, long flushLateness) {
    return json(
        out -> {
          out.writeStringField("type", "partial");
          writeSpan(out, span);
          out.writeFieldName("rms");
          out.writeNumber(recognition.rms());
          out.writeNumberField("zero_crossings", recognition.zeroCrossings());
          out.writeNumberField("checksum", recognition.checksum());
          out.writeNumberField("samples", recognition.samples());
          out.writeStringField("transcript", recognition.transcript());
          out.writeNumberField("audio_bytes", recognition.audioBytes());
          out.writeNumberField("cpu_passes", echo.cpuPasses());
          out.writeNumberField("model_delay_ms", echo.modelDelayMs());
          out.writeNumberField("flush_lateness_ms", milliseconds(flushLateness));
          out.writeNumberField("inflight_model_jobs", 0);
        });
  }

  /** Returns the error that covers {@code span}. */
  static String error(Span span, Failure failure, ErrorContext context) {
    return json(
        out -> {
          out.writeStringField("type", "error");
          out.writeStringField("stage", failure.kind().stage);
          out.writeStringField("kind", failure.kind().wire);
          out.writeStringField("message", failure.message());
          writeSpan(out, span);
          out.writeNumberField("audio_bytes", span.audioBytes());
          out.writeNumberField("oldest_age_ms", milliseconds(context.oldestAge()));
          out.writeNumberField("newest_age_ms", milliseconds(context.newestAge()));
          out.writeNumberField("flush_lateness_ms", milliseconds(context.flushLateness()));
          out.writeFieldName("inference_elapsed_ms");
          if (context.inferenceElapsed() == null) {
            out.writeNull();
          } else {
            out.writeNumber(milliseconds(context.inferenceElapsed()));
          }
          out.writeNumberField(
              "inflight_gateway_batches", context.inferenceElapsed() == null ? 0 : 1);
          out.writeNumberField("gateway_buffer_frames", context.bufferedFrames());
          out.writeFieldName("inference_status");
          if (failure.status() == null) {
            out.writeNull();
          } else {
            out.writeNumber(failure.status());
          }
          out.writeBooleanField("retryable", failure.kind().isRetryable(failure.status()));
        });
  }

  private static void writeSpan(JsonGenerator out, Span span) throws IOException {
    out.writeNumberField("oldest_frame_seq", span.oldest());
    out.writeNumberField("newest_frame_seq", span.newest());
    out.writeNumberField("frames", span.frames());
  }

  private static double milliseconds(long nanoseconds) {
    // A single division: two roundings would turn 1.5 ms into 1.4999...
    return nanoseconds / 1e6;
  }

  /** Writes the fields of a JSON object. */
  interface Fields {
    void write(JsonGenerator out) throws IOException;
  }

  /** Returns a JSON object with these fields, as text. */
  static String json(Fields fields) {
    StringWriter text = new StringWriter(512);
    try (JsonGenerator out = JSON.createGenerator(text)) {
      out.writeStartObject();
      fields.write(out);
      out.writeEndObject();
    } catch (IOException e) {
      throw new UncheckedIOException("a StringWriter takes everything", e);
    }
    return text.toString();
  }
}
