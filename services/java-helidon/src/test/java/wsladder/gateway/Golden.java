package wsladder.gateway;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Loads the golden messages with which all gateways are tested. */
final class Golden {
  private Golden() {}

  static List<JsonNode> list(String name) throws IOException {
    Path file = Path.of("..", "testdata", "stt-messages.json");
    List<JsonNode> entries = new ArrayList<>();
    new ObjectMapper().readTree(file.toFile()).get(name).forEach(entries::add);
    return entries;
  }
}
