package wsladder.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import wsladder.gateway.Books.Admission;
import wsladder.gateway.Protocol.Kind;

final class MetricsTest {
  private static Books booksWithTraffic() {
    Books books = new Books(2);
    assertEquals(Admission.ADMITTED, books.admit());
    assertEquals(Admission.ADMITTED, books.admit());
    assertEquals(Admission.FULL, books.admit());
    books.update(
        counts -> {
          counts.received += 7;
          counts.consumed += 1;
          counts.waiting += 6;
          counts.startRequest(3, 1);
          counts.completeRequest(3);
          counts.startRequest(2, 1);
          counts.failRequest(Kind.TIMEOUT, 2);
          counts.tick(1_500_000);
          counts.close(CloseReason.client(1000), 1);
        });
    return books;
  }

  @Test
  void statsBalance() throws IOException {
    JsonNode stats = new ObjectMapper().readTree(new Metrics(booksWithTraffic()).stats());
    JsonNode messages = stats.get("messages");
    long dropped = 0;
    for (JsonNode count : messages.get("dropped")) {
      dropped += count.asLong();
    }
    assertEquals(
        messages.get("received").asLong(),
        messages.get("consumed").asLong()
            + messages.get("delivered").asLong()
            + dropped
            + messages.get("queued").asLong());
    assertEquals(1, stats.at("/inference/failed/timeout").asInt());
    assertEquals(1, stats.at("/connections/rejected/full").asInt());
  }

  @Test
  void metricsListAllFailureKindsFromTheStart() {
    String text = new Metrics(new Books(0)).prometheus();
    assertTrue(text.contains("service_inference_failed_total{kind=\"http_429\"} 0\n"), text);
    assertTrue(text.contains("service_flush_lateness_seconds_bucket{le=\"0.0005\"} 0\n"), text);
  }

  @Test
  void tickIsCountedInEachBucketFromItsLatenessUp() {
    String text = new Metrics(booksWithTraffic()).prometheus();
    assertTrue(text.contains("service_flush_lateness_seconds_bucket{le=\"0.001\"} 0\n"), text);
    assertTrue(text.contains("service_flush_lateness_seconds_bucket{le=\"0.002\"} 1\n"), text);
    assertTrue(text.contains("service_flush_lateness_seconds_bucket{le=\"+Inf\"} 1\n"), text);
    assertTrue(text.contains("service_flush_lateness_seconds_sum 0.0015\n"), text);
  }

  @Test
  void countersOfOneFamilyDifferByLabel() {
    Exposition text = new Exposition();
    TreeMap<String, Long> counts = new TreeMap<>();
    counts.put("x", 1L);
    counts.put("y", 0L);
    text.counters("a_total", "By b", "b", counts);
    assertEquals(
        "# HELP a_total By b\n# TYPE a_total counter\na_total{b=\"x\"} 1\na_total{b=\"y\"} 0\n",
        text.toString());
  }
}
