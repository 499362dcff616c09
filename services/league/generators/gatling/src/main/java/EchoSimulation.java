import static io.gatling.javaapi.core.CoreDsl.*;
import static io.gatling.javaapi.http.HttpDsl.*;

import io.gatling.javaapi.core.Assertion;
import io.gatling.javaapi.core.ChainBuilder;
import io.gatling.javaapi.core.ScenarioBuilder;
import io.gatling.javaapi.core.Simulation;
import java.time.Duration;

/** Each user sends a message, awaits its check, and sends the next one. Parameters are system properties. */
public class EchoSimulation extends Simulation {
  private static final String TEXT = System.getProperty("text");
  private static final double PAUSE_SECONDS = Double.parseDouble(System.getProperty("pause_seconds"));

  private final ChainBuilder message =
      exec(
          ws("message")
              .sendText(TEXT)
              .await(10)
              .on(ws.checkTextMessage("echo").check(bodyString().is(TEXT))));

  private final ChainBuilder paced =
      PAUSE_SECONDS > 0 ? exec(message).pause(Duration.ofNanos((long) (PAUSE_SECONDS * 1e9))) : message;

  private final ScenarioBuilder echo =
      scenario("echo")
          .exec(ws("connect").connect("/"))
          .repeat(Integer.getInteger("messages"))
          .on(paced)
          .exec(ws("close").close());

  // Assertions that always hold: with each, Gatling prints the actual figure.
  private static final Assertion[] FIGURES = {
    details("echo").successfulRequests().count().gte(0L),
    details("echo").responseTime().mean().gte(0),
    details("echo").responseTime().percentile(50).gte(0),
    details("echo").responseTime().percentile(99).gte(0),
    details("echo").responseTime().max().gte(0),
  };

  {
    setUp(echo.injectOpen(atOnceUsers(Integer.getInteger("connections"))))
        .assertions(FIGURES)
        .protocols(http.wsBaseUrl("ws://127.0.0.1:" + Integer.getInteger("port")));
  }
}
