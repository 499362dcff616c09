package wsladder.gateway

import com.typesafe.config.ConfigFactory
import java.net.URI
import java.net.http.{HttpClient, WebSocket}
import java.nio.ByteBuffer
import java.util.concurrent.TimeUnit
import org.apache.pekko.actor.ActorSystem
import scala.concurrent.Await
import scala.concurrent.duration.*

/**
 * A short run of the built gateway under load, which `build` starts to create the ahead-of-time cache. The JVM records
 * the classes that it loads and the methods that are hot, and writes them into the cache when it exits.
 */
object Training:
  private val Sessions = 40
  private val Rounds = 60
  private val FramesPerRound = 5
  private val RoundMillis = 100L
  private val WriteSeconds = 240L

  /** Runs the gateway with the java program `arguments(0)`. The working directory is the service's folder. */
  def main(arguments: Array[String]): Unit =
    given system: ActorSystem = ActorSystem("training", FakeInference.settings.withFallback(ConfigFactory.load()))
    val inference = Await.result(FakeInference.start(), 10.seconds)
    val gateway = start(arguments(0), inference)
    try load(addressOf(gateway))
    finally gateway.destroy() // Sends SIGTERM: the gateway drains and writes the cache.
    if !gateway.waitFor(WriteSeconds, TimeUnit.SECONDS) then gateway.destroyForcibly(): Unit
    Runtime.getRuntime.halt(gateway.exitValue)

  private def start(java: String, inference: String): Process =
    ProcessBuilder(
      java,
      "@java.options",
      "-Xlog:all=error:stderr",
      "-XX:AOTCacheOutput=target/scala-pekko.aot",
      "-jar",
      "target/scala-pekko.jar",
      "--port=0",
      s"--inference-url=$inference",
      "--flush-interval-ms=200",
      "--flush-phase-jitter-ms=200"
    ).redirectError(ProcessBuilder.Redirect.INHERIT).start()

  private def addressOf(gateway: Process): String =
    val ready = gateway.inputReader.readLine
    val key = "\"address\":\""
    ready.drop(ready.indexOf(key) + key.length).takeWhile(_ != '"')

  private def load(address: String): Unit =
    val client = HttpClient.newHttpClient()
    val sessions = Vector.fill(Sessions):
      val session =
        client.newWebSocketBuilder().buildAsync(URI.create(s"ws://$address/ws/stt"), new WebSocket.Listener {}).join()
      session.sendText("{\"type\":\"start\"}", true).join()
    for _ <- 1 to Rounds do
      for
        session <- sessions
        _ <- 1 to FramesPerRound
      do session.sendBinary(ByteBuffer.allocate(Protocol.FrameBytes), true).join()
      Thread.sleep(RoundMillis)
    sessions.foreach(_.sendClose(WebSocket.NORMAL_CLOSURE, "").join())
