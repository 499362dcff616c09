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
 * `Main` starts it and prints where it listens; `Server` answers HTTP and upgrades; `Session` is one client, a stage of
 * a stream: `Messages` puts together what it receives, `Backlog` keeps its audio, `Inference` has it recognised,
 * `Protocol` reads and writes messages. `Books` counts, and shows what was counted. `Gateway` is what all sessions
 * share, `Config` the settings.
 *
 * Two files are there for what Pekko HTTP lacks: `Frames` reaches its WebSocket frames, because its messages carry no
 * close codes; `Resets` keeps the HTTP/2 connection to the inference alive when one request on it is reset.
 */
object Main:
  val Name = "scala-pekko"
  val Version = "0.1.0"
  private val BadUsage = 2

  /** How long all sessions together may take to end. */
  private val DrainMillis = 3_900L

  def main(arguments: Array[String]): Unit =
    // The ready line is alone on standard output, also where a library prints there.
    val out = System.out
    System.setOut(System.err)
    if arguments.contains("--version") then
      out.println(s"$Name $Version (Scala $scalaVersion, Java ${Runtime.version})")
    else if arguments.contains("--help") then out.print(Config.help)
    else
      Config.parse(arguments.toList, sys.env) match
        case Left(wrong) =>
          System.err.println(s"$Name: $wrong")
          sys.exit(BadUsage)
        case Right(config) => out.println(start(config))

  /** Scala 3's, from its library's manifest; `util.Properties` has that of Scala 2's library below it. */
  private def scalaVersion: String =
    Option(classOf[scala.deriving.Mirror].getPackage.getImplementationVersion).getOrElse("3")

  /** Serves until SIGTERM; the ready line. */
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
      s"""{"event":"ready","address":"${at(config, clients)}","metrics_address":"${at(config, metrics)}","pid":$pid}"""
    catch
      case NonFatal(error) =>
        System.err.println(s"$Name: ${error.getMessage}")
        Runtime.getRuntime.halt(1)
        ""

  private def at(config: Config, bound: InetSocketAddress): String = Address(config.host, bound.getPort).toString
