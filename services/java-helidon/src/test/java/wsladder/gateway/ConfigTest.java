package wsladder.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import wsladder.gateway.Config.ConfigException;

final class ConfigTest {
  @Test
  void unsetSettingsHaveDefaults() throws ConfigException {
    Config config = Config.parse(List.of(), Map.of());
    assertEquals("127.0.0.1", config.host());
    assertEquals(3000, config.port());
    assertEquals(1000, config.flushIntervalMs());
    assertEquals(200, config.maxBufferedFrames());
  }

  @Test
  void flagOverridesVariable() throws ConfigException {
    Map<String, String> environment = Map.of("PORT", "1", "CPU_PASSES", "2");
    Config config = Config.parse(List.of("--port", "5", "--metrics-port=6"), environment);
    assertEquals(5, config.port());
    assertEquals(6, config.metricsPort());
    assertEquals(2, config.cpuPasses());
  }

  @ParameterizedTest
  @CsvSource({
    "HOST, localhost",
    "PORT, 65536",
    "METRICS_PORT, -1",
    "CPU_PASSES, 0",
    "CPU_PASSES, 4.0",
    "MODEL_DELAY_MS, +1",
    "FLUSH_INTERVAL_MS, 0",
    "FLUSH_PHASE_JITTER_MS, 60001",
    "INFERENCE_TIMEOUT_MS, ''",
    "INFERENCE_HTTP_CLIENTS, 0",
    "WORKER_THREADS, many",
    "MAX_BUFFERED_FRAMES, 0",
    "MAX_CONNECTIONS, 1e3",
  })
  void invalidValueIsRejectedWithItsVariable(String variable, String value) {
    ConfigException exception =
        assertThrows(ConfigException.class, () -> Config.parse(List.of(), Map.of(variable, value)));
    assertTrue(exception.getMessage().contains(variable), exception.getMessage());
    assertTrue(exception.getMessage().contains(value), exception.getMessage());
  }

  @ParameterizedTest
  @ValueSource(strings = {"http://127.0.0.1:9000", "http://inference-sim:80/", "http://[::1]:1"})
  void inferenceUrlWithHostAndPortIsAccepted(String url) throws ConfigException {
    Config config = Config.parse(List.of("--inference-url", url), Map.of());
    assertEquals("/infer", config.inferenceUrl().resolve("/infer").getPath());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "https://a:1",
        "http://a",
        "http://a:0",
        "http://a:x",
        "http://a:1/b",
        "http://u@a:1",
        ""
      })
  void otherInferenceUrlsAreRejected(String url) {
    List<String> flags = List.of("--inference-url", url);
    assertThrows(ConfigException.class, () -> Config.parse(flags, Map.of()));
  }

  @Test
  void unknownFlagAndFlagWithoutValueAreRejected() {
    assertThrows(ConfigException.class, () -> Config.parse(List.of("--prot", "1"), Map.of()));
    assertThrows(ConfigException.class, () -> Config.parse(List.of("--port"), Map.of()));
  }

  @Test
  void helpListsFlags() {
    assertTrue(Config.help().contains("--max-buffered-frames"));
  }
}
