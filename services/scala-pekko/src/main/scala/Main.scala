package wsladder.gateway

import com.typesafe.config.ConfigFactory
import java.net.InetSocketAddress
import org.apache.pekko.actor.ActorSystem
import scala.concurrent.Await
import scala.concurrent.duration.*
import scala.util.control.NonFatal

/**
 * Speech-to-text gateway on Pekko: HTTP, streams, and HTTP/2 to the inference. services/README.md ("Gateways") is its
 * contract.
 *
 * `Main` parses the settings (`Config`), starts the gateway and prints the ready line. `Server` serves HTTP and
 * upgrades connections. `Session` serves one client, as a stage of a stream: `Messages` joins the frames that it
 * receives to messages, `Backlog` keeps its audio, `Inference` sends batches to the inference, and `Protocol` parses
 * and writes messages. `Books` counts and formats the counters. `Gateway` is the state that all sessions share.
 *
 * Two files work around limits of Pekko HTTP: `Frames` gives access to its WebSocket frames, because its messages carry
 * no close codes; `Resets` keeps the HTTP/2 connection to the inference when one request on it is reset.
 */
object Main:
  val Name = "scala-pekko"
  val Version = "0.1.0"
  private val BadUsage = 2

  /** Time for all sessions together to end after SIGTERM. */
  private val DrainMillis = 3_900L

  def main(arguments: Array[String]): Unit =
    // Only the ready line may be on standard output; anything that a library prints goes to standard error.
    val out = System.out
    System.setOut(System.err)
    if arguments.contains("--version") then
      out.println(s"$Name $Version (Scala $scalaVersion, Java ${Runtime.version})")
    else if arguments.contains("--help") then out.print(Config.help)
    else
      Config.parse(arguments.toList, sys.env) match
        case Left(error) =>
          System.err.println(s"$Name: $error")
          sys.exit(BadUsage)
        case Right(config) => out.println(start(config))

  /** The version of Scala 3, from its library's manifest; `util.Properties` has the version of the Scala 2 library. */
  private def scalaVersion: String =
    Option(classOf[scala.deriving.Mirror].getPackage.getImplementationVersion).getOrElse("3")

  /** Starts the gateway, which serves until SIGTERM, and returns the ready line. Exits with status 1 on failure. */
  private def start(config: Config): String =
    val threads = if config.workerThreads > 0 then config.workerThreads else Runtime.getRuntime.availableProcessors
    val settings = ConfigFactory.parseString(
      s"""pekko.actor.default-dispatcher.fork-join-executor { parallelism-min = $threads, parallelism-max = $threads }
         |pekko.actor.internal-dispatcher.fork-join-executor { parallelism-min = 1, parallelism-max = 1 }
         |""".stripMargin
    )
    given system: ActorSystem = ActorSystem(Name, settings.withFallback(ConfigFactory.load()))
    val gateway = Gateway(config, Books(), Inference(config))
    val server = Server(gateway)
    try
      val clients = Await.result(server.clients(), 10.seconds).localAddress
      val metrics = Await.result(server.metrics(), 10.seconds).localAddress
      sys.addShutdownHook:
        gateway.drain(DrainMillis)
        Runtime.getRuntime.halt(0)
      val pid = ProcessHandle.current.pid
      s"""{"event":"ready","address":"${address(config, clients)}","metrics_address":"${address(
          config,
          metrics
        )}","pid":$pid}"""
    catch
      case NonFatal(error) =>
        System.err.println(s"$Name: ${error.getMessage}")
        Runtime.getRuntime.halt(1)
        ""

  private def address(config: Config, bound: InetSocketAddress): String = Address(config.host, bound.getPort).toString
