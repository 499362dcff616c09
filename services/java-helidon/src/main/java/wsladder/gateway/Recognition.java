package wsladder.gateway;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import wsladder.gateway.Protocol.Failure;
import wsladder.gateway.Protocol.Kind;
import wsladder.gateway.Protocol.Outcome;
import wsladder.gateway.Protocol.Span;

/**
 * The inference's response to one batch: a JSON object with exactly these six keys. Integers have
 * no fraction and no exponent, and the counts match the batch; any other response is a parse error.
 *
 * @param rms the number as text, so that the client gets the digits that the inference wrote
 */
record Recognition(
    String rms, long zeroCrossings, long checksum, long samples, String transcript, long audioBytes)
    implements Outcome {

  private static final long MAX_CHECKSUM = 0xffff_ffffL;

  /** Parses the body of a response with {@code status} to the batch {@code span}. */
  static Outcome parse(byte[] body, int status, Span span, int cpuPasses) {
    try (JsonParser parser = Protocol.JSON.createParser(body)) {
      Recognition recognition = read(parser);
      recognition.check(span, cpuPasses);
      return recognition;
    } catch (IOException e) {
      // Jackson appends the source and the position on separate lines.
      String reason = e.getMessage().lines().findFirst().orElse("");
      return new Failure(
          Kind.PARSE_ERROR, status, "failed to parse the inference's answer: " + reason);
    }
  }

  private static Recognition read(JsonParser parser) throws IOException {
    if (parser.nextToken() != JsonToken.START_OBJECT) {
      throw new IOException("it is no JSON object");
    }
    String rms = null;
    Long zeroCrossings = null;
    Long checksum = null;
    Long samples = null;
    String transcript = null;
    Long audioBytes = null;
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      String name = parser.currentName();
      parser.nextToken();
      switch (name) {
        case "rms" -> rms = number(parser);
        case "zero_crossings" -> zeroCrossings = integer(parser, Long.MAX_VALUE);
        case "checksum" -> checksum = integer(parser, MAX_CHECKSUM);
        case "samples" -> samples = integer(parser, Long.MAX_VALUE);
        case "transcript" -> transcript = text(parser);
        case "audio_bytes" -> audioBytes = integer(parser, Long.MAX_VALUE);
        default -> throw new IOException("it has a further key");
      }
    }
    if (parser.nextToken() != null) {
      throw new IOException("something follows the object");
    }
    if (rms == null
        || zeroCrossings == null
        || checksum == null
        || samples == null
        || transcript == null
        || audioBytes == null) {
      throw new IOException("a key is missing");
    }
    return new Recognition(rms, zeroCrossings, checksum, samples, transcript, audioBytes);
  }

  private static String number(JsonParser parser) throws IOException {
    if (!parser.currentToken().isNumeric() || !Double.isFinite(parser.getDoubleValue())) {
      throw new IOException(parser.currentName() + " is not a finite number");
    }
    return parser.getText();
  }

  private static long integer(JsonParser parser, long max) throws IOException {
    if (parser.currentToken() != JsonToken.VALUE_NUMBER_INT) {
      throw new IOException(parser.currentName() + " is not an integer");
    }
    long value = parser.getLongValue();
    if (value < 0 || value > max) {
      throw new IOException(parser.currentName() + " is out of range");
    }
    return value;
  }

  private static String text(JsonParser parser) throws IOException {
    if (parser.currentToken() != JsonToken.VALUE_STRING) {
      throw new IOException(parser.currentName() + " is not text");
    }
    return parser.getText();
  }

  private void check(Span span, int cpuPasses) throws IOException {
    long expected = (long) cpuPasses * Protocol.FRAME_SAMPLES * span.frames();
    if (samples != expected) {
      throw new IOException("it has %d samples instead of %d".formatted(samples, expected));
    }
    if (audioBytes != span.audioBytes()) {
      throw new IOException(
          "it has %d bytes of audio instead of %d".formatted(audioBytes, span.audioBytes()));
    }
    if (transcript.isEmpty()) {
      throw new IOException("its transcript is empty");
    }
  }
}
