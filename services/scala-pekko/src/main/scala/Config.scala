package wsladder.gateway

import java.net.URI
import scala.util.Try

/** Validated settings; services/README.md ("Settings") describes them. Times are in milliseconds. */
final case class Config(
    host: String,
    port: Int,
    metricsPort: Int,
    inference: Address,
    cpuPasses: Int,
    modelDelayMs: Int,
    flushIntervalMs: Int,
    flushPhaseJitterMs: Int,
    inferenceTimeoutMs: Int,
    inferenceHttpClients: Int,
    workerThreads: Int,
    maxBufferedFrames: Int,
    maxConnections: Int
)

/** The host and the port on which a server listens. */
final case class Address(host: String, port: Int):
  override def toString: String = if host.contains(':') then s"[$host]:$port" else s"$host:$port"

object Config:
  /** A setting: its variable, its default, the range of a number, and the text for `--help`. */
  private final case class Setting(name: String, default: String, range: Option[Range], meaning: String):
    def flag: String = "--" + name.toLowerCase.replace('_', '-')

  private val settings: List[Setting] = List(
    Setting("HOST", "127.0.0.1", None, "address of both ports"),
    Setting("PORT", "3000", Some(0 to 65535), "where clients connect; 0: the kernel picks"),
    Setting("METRICS_PORT", "0", Some(0 to 65535), "the metrics port; 0: the kernel picks"),
    Setting("INFERENCE_URL", "http://127.0.0.1:9000", None, "the inference: http://host:port"),
    Setting("CPU_PASSES", "4", Some(1 to 1000), "passes that the inference makes over a batch"),
    Setting("MODEL_DELAY_MS", "75", Some(0 to 600000), "echoed in every partial"),
    Setting("FLUSH_INTERVAL_MS", "1000", Some(1 to 3600000), "time between a session's ticks"),
    Setting("FLUSH_PHASE_JITTER_MS", "0", Some(0 to 3600000), "a session's ticks are shifted once by up to this"),
    Setting("INFERENCE_TIMEOUT_MS", "2000", Some(1 to 3600000), "for one request in all, from its tick"),
    Setting("INFERENCE_HTTP_CLIENTS", "1", Some(1 to 1024), "HTTP/2 connections to the inference"),
    Setting("WORKER_THREADS", "0", Some(0 to 1024), "threads; 0: as many as CPUs may be used"),
    Setting("MAX_BUFFERED_FRAMES", "200", Some(1 to 1000000), "frames that may wait per session"),
    Setting("MAX_CONNECTIONS", "0", Some(0 to 10000000), "more are refused with 503; 0: no limit")
  )

  /** The text that `--help` prints. */
  val help: String =
    val lines = settings.map: setting =>
      f"  ${setting.flag}%-26s ${setting.name}%-24s ${setting.meaning} (${setting.default})"
    s"Usage: scala-pekko [--version] [--help] [FLAG VALUE]...\n\nFlags win over variables.\n\n${lines.mkString("\n")}\n"

  /** Parses flags and variables. `Left` is an error message that names the setting or the flag. */
  def parse(arguments: List[String], environment: Map[String, String]): Either[String, Config] =
    for
      flags <- flagsOf(arguments, Map.empty)
      config <- validate: name =>
        flags.get(name).orElse(environment.get(name)).getOrElse(settings.find(_.name == name).fold("")(_.default))
    yield config

  @annotation.tailrec
  private def flagsOf(arguments: List[String], parsed: Map[String, String]): Either[String, Map[String, String]] =
    arguments match
      case Nil              => Right(parsed)
      case argument :: rest =>
        val (flag, equalsAndValue) = argument.span(_ != '=')
        (settings.find(_.flag == flag), equalsAndValue.drop(1), rest) match
          case (None, _, _)                                         => Left(s"unknown flag $flag; --help lists them")
          case (Some(setting), value, _) if equalsAndValue.nonEmpty =>
            flagsOf(rest, parsed.updated(setting.name, value))
          case (Some(setting), _, value :: remaining) => flagsOf(remaining, parsed.updated(setting.name, value))
          case (Some(_), _, Nil)                      => Left(s"$flag needs a value")

  private def validate(text: String => String): Either[String, Config] =
    def number(name: String): Either[String, Int] =
      val allowed = settings.find(_.name == name).flatMap(_.range).getOrElse(0 to Int.MaxValue)
      val value = text(name)
      value.toIntOption
        .filter(allowed.contains)
        .toRight(s"$name: \"$value\" is not a whole number from ${allowed.start} to ${allowed.end}")
    for
      host <- Either.cond(text("HOST").nonEmpty, text("HOST"), "HOST: \"\" is not an address")
      port <- number("PORT")
      metricsPort <- number("METRICS_PORT")
      inference <- address(text("INFERENCE_URL"))
      cpuPasses <- number("CPU_PASSES")
      modelDelayMs <- number("MODEL_DELAY_MS")
      flushIntervalMs <- number("FLUSH_INTERVAL_MS")
      flushPhaseJitterMs <- number("FLUSH_PHASE_JITTER_MS")
      inferenceTimeoutMs <- number("INFERENCE_TIMEOUT_MS")
      inferenceHttpClients <- number("INFERENCE_HTTP_CLIENTS")
      workerThreads <- number("WORKER_THREADS")
      maxBufferedFrames <- number("MAX_BUFFERED_FRAMES")
      maxConnections <- number("MAX_CONNECTIONS")
    yield Config(
      host,
      port,
      metricsPort,
      inference,
      cpuPasses,
      modelDelayMs,
      flushIntervalMs,
      flushPhaseJitterMs,
      inferenceTimeoutMs,
      inferenceHttpClients,
      workerThreads,
      maxBufferedFrames,
      maxConnections
    )

  private def address(text: String): Either[String, Address] =
    val error = s"INFERENCE_URL: \"$text\" is not http://host:port"
    for
      uri <- Try(URI(text)).toEither.left.map(_ => error)
      hasOnlyAddress = List(uri.getUserInfo, uri.getQuery, uri.getFragment).forall(_ == null)
      path = Option(uri.getPath).getOrElse("")
      host = Option(uri.getHost).getOrElse("").stripPrefix("[").stripSuffix("]")
      isValid = uri.getScheme == "http" && hasOnlyAddress && (path.isEmpty || path == "/") && host.nonEmpty &&
        uri.getPort > 0
      address <- Either.cond(isValid, Address(host, uri.getPort), error)
    yield address
