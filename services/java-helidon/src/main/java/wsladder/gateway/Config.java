package wsladder.gateway;

import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The gateway's settings: environment variables, and flags of the same meaning, which win. {@code
 * services/README.md} ("Gateways") describes them. Times are in milliseconds.
 */
record Config(
    String host,
    int port,
    int metricsPort,
    URI inferenceUrl,
    int cpuPasses,
    long modelDelayMs,
    long flushIntervalMs,
    long flushPhaseJitterMs,
    long inferenceTimeoutMs,
    int inferenceHttpClients,
    int workerThreads,
    int maxBufferedFrames,
    int maxConnections) {

  /** An invalid value or an unknown flag. The message names the variable or the flag. */
  static final class ConfigException extends Exception {
    private static final long serialVersionUID = 1L;

    ConfigException(String message) {
      super(message);
    }
  }

  /** All settings with their defaults, in the order of {@code --help}. */
  private static final List<Setting> SETTINGS =
      List.of(
          new Setting("HOST", "127.0.0.1", "address to listen on"),
          new Setting("PORT", "3000", "port of the WebSocket; 0 lets the kernel pick"),
          new Setting("METRICS_PORT", "0", "port of /stats and /metrics; 0 lets the kernel pick"),
          new Setting(
              "INFERENCE_URL", "http://127.0.0.1:9000", "the inference, as http://host:port"),
          new Setting("CPU_PASSES", "4", "passes that the inference makes over each batch"),
          new Setting("MODEL_DELAY_MS", "75", "echoed in every partial, no other effect"),
          new Setting("FLUSH_INTERVAL_MS", "1000", "time between two flush ticks of a session"),
          new Setting(
              "FLUSH_PHASE_JITTER_MS", "0", "ticks are shifted once by a random time up to this"),
          new Setting(
              "INFERENCE_TIMEOUT_MS", "2000", "longest time from a tick to the end of the answer"),
          new Setting("INFERENCE_HTTP_CLIENTS", "2", "HTTP/2 connections to the inference"),
          new Setting("WORKER_THREADS", "0", "carrier threads; 0: as many as CPUs may be used"),
          new Setting("MAX_BUFFERED_FRAMES", "200", "frames that may wait per session"),
          new Setting("MAX_CONNECTIONS", "0", "more are refused with 503; 0: no limit"));

  private record Setting(String variable, String defaultValue, String help) {
    String flag() {
      return "--" + variable.toLowerCase(java.util.Locale.ROOT).replace('_', '-');
    }
  }

  /**
   * Parses the settings.
   *
   * @throws ConfigException if a flag is unknown or has no value, or if a value is invalid
   */
  static Config parse(List<String> arguments, Map<String, String> environment)
      throws ConfigException {
    Values values = new Values(flags(arguments), environment);
    return new Config(
        values.address("HOST"),
        (int) values.number("PORT", 0, 65_535),
        (int) values.number("METRICS_PORT", 0, 65_535),
        values.inference("INFERENCE_URL"),
        (int) values.number("CPU_PASSES", 1, 65_536),
        values.number("MODEL_DELAY_MS", 0, Integer.MAX_VALUE),
        values.number("FLUSH_INTERVAL_MS", 10, 60_000),
        values.number("FLUSH_PHASE_JITTER_MS", 0, 60_000),
        values.number("INFERENCE_TIMEOUT_MS", 1, 600_000),
        (int) values.number("INFERENCE_HTTP_CLIENTS", 1, 256),
        (int) values.number("WORKER_THREADS", 0, 1024),
        (int) values.number("MAX_BUFFERED_FRAMES", 1, 100_000),
        (int) values.number("MAX_CONNECTIONS", 0, 10_000_000));
  }

  /** Returns the text that {@code --help} prints. */
  static String help() {
    StringBuilder text = new StringBuilder("Usage: java-helidon [--version] [--FLAG VALUE]...\n\n");
    for (Setting setting : SETTINGS) {
      text.append(
          "  %-26s %s [%s, default %s]%n"
              .formatted(
                  setting.flag(), setting.help(), setting.variable(), setting.defaultValue()));
    }
    return text.toString();
  }

  private static Map<String, String> flags(List<String> arguments) throws ConfigException {
    Map<String, String> flags = new HashMap<>();
    List<String> remaining = new ArrayList<>(arguments);
    while (!remaining.isEmpty()) {
      String argument = remaining.removeFirst();
      int equals = argument.indexOf('=');
      String flag = equals < 0 ? argument : argument.substring(0, equals);
      if (SETTINGS.stream().noneMatch(setting -> setting.flag().equals(flag))) {
        throw new ConfigException("unknown flag \"" + flag + "\"");
      }
      if (equals < 0 && remaining.isEmpty()) {
        throw new ConfigException(flag + " has no value");
      }
      flags.put(flag, equals < 0 ? remaining.removeFirst() : argument.substring(equals + 1));
    }
    return flags;
  }

  /** The unparsed values of flags and variables, and methods that parse them. */
  private record Values(Map<String, String> flags, Map<String, String> environment) {
    private record RawValue(String name, String text) {
      ConfigException isNot(String expected) {
        return new ConfigException("%s: \"%s\" is not %s".formatted(name, text, expected));
      }
    }

    private RawValue raw(String variable) {
      Setting setting =
          SETTINGS.stream()
              .filter(candidate -> candidate.variable().equals(variable))
              .findFirst()
              .orElseThrow();
      String flag = flags.get(setting.flag());
      if (flag != null) {
        return new RawValue(setting.flag(), flag);
      }
      return new RawValue(variable, environment.getOrDefault(variable, setting.defaultValue()));
    }

    long number(String variable, long min, long max) throws ConfigException {
      RawValue raw = raw(variable);
      // Long.parseLong also accepts a sign and digits of other scripts.
      if (raw.text().matches("[0-9]{1,18}")) {
        long number = Long.parseLong(raw.text());
        if (number >= min && number <= max) {
          return number;
        }
      }
      throw raw.isNot("a whole number from %d to %d".formatted(min, max));
    }

    String address(String variable) throws ConfigException {
      RawValue raw = raw(variable);
      // Only addresses are accepted: a name would cause a DNS lookup.
      if (!raw.text().matches("[0-9]{1,3}(\\.[0-9]{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")) {
        throw raw.isNot("an IP address");
      }
      return raw.text();
    }

    URI inference(String variable) throws ConfigException {
      RawValue raw = raw(variable);
      return inferenceUrl(raw.text()).orElseThrow(() -> raw.isNot("http://host:port"));
    }
  }

  private static Optional<URI> inferenceUrl(String text) {
    URI url;
    try {
      url = URI.create(text);
    } catch (IllegalArgumentException e) {
      return Optional.empty();
    }
    boolean isPlain =
        "http".equals(url.getScheme())
            && url.getHost() != null
            && url.getPort() > 0
            && url.getPort() <= 65_535
            && url.getUserInfo() == null
            && ("".equals(url.getPath()) || "/".equals(url.getPath()))
            && url.getQuery() == null
            && url.getFragment() == null;
    return isPlain ? Optional.of(url) : Optional.empty();
  }
}
