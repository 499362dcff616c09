package wsladder.gateway;

import java.math.BigDecimal;
import java.util.Map;

/** A builder of the Prometheus text format 0.0.4. Each call appends one metric family. */
final class Exposition {
  private final StringBuilder text = new StringBuilder(8192);

  void counter(String name, String help, long value) {
    head(name, help, "counter");
    sample(name, Long.toString(value));
  }

  void gauge(String name, String help, long value) {
    head(name, help, "gauge");
    sample(name, Long.toString(value));
  }

  /** Appends a counter for each entry of {@code counts}; the key is the value of {@code label}. */
  void counters(String name, String help, String label, Map<String, Long> counts) {
    head(name, help, "counter");
    counts.forEach(
        (value, count) ->
            sample("%s{%s=\"%s\"}".formatted(name, label, value), Long.toString(count)));
  }

  /**
   * Appends a histogram.
   *
   * @param counts observations per bucket, not cumulative; one more than there are bounds
   */
  void histogram(String name, String help, double[] bounds, long[] counts, double sum) {
    head(name, help, "histogram");
    long count = 0;
    for (int i = 0; i < counts.length; i++) {
      count += counts[i];
      String bound = i < bounds.length ? decimal(bounds[i]) : "+Inf";
      sample("%s_bucket{le=\"%s\"}".formatted(name, bound), Long.toString(count));
    }
    sample(name + "_sum", decimal(sum));
    sample(name + "_count", Long.toString(count));
  }

  /** Formats a number without an exponent and without trailing zeros. */
  private static String decimal(double value) {
    return value == 0 ? "0" : BigDecimal.valueOf(value).stripTrailingZeros().toPlainString();
  }

  private void head(String name, String help, String type) {
    text.append("# HELP %s %s\n# TYPE %s %s\n".formatted(name, help, name, type));
  }

  private void sample(String name, String value) {
    text.append(name).append(' ').append(value).append('\n');
  }

  @Override
  public String toString() {
    return text.toString();
  }
}
