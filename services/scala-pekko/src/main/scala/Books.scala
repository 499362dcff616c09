package wsladder.gateway

import java.nio.file.{Files, Path}
import scala.collection.mutable
import wsladder.gateway.Protocol.{FrameBytes, Kind}

/** All counters. Sessions change them only inside `update`, so that the counts of each response balance. */
final class Books:
  /**
   * A counter for each name. The given names are present from the start, with 0; others appear when they are counted.
   */
  final class Counts(names: String*):
    private val values = mutable.LinkedHashMap.from(names.map(_ -> 0L))
    def add(name: String, count: Long = 1): Unit = values(name) = values.getOrElse(name, 0L) + count
    def sum: Long = values.values.sum
    def toMap: Map[String, Long] = values.toMap

  var received, consumed, delivered, waiting, inFlightFrames, sent = 0L
  var bytesReceived, bytesSent = 0L
  var accepted, open = 0L
  var requests, answered, abandoned, requestsInFlight, inFlightMax = 0L
  val dropped: Counts = Counts()
  val closed: Counts = Counts()
  val rejected: Counts = Counts()
  val failed: Counts = Counts(Kind.values.filter(_ != Kind.Overflow).map(_.name)*)
  val ticks: Counts = Counts("flushed", "skipped", "empty")
  private val lateness = new Array[Long](Books.LatenessBounds.length + 1)
  private var latenessSum = 0.0

  /** Runs `change` under the lock, so that a response contains all of it or nothing. */
  def update[T](change: Books => T): T = synchronized(change(this))

  /** Counts a tick that ran `latenessNanos` nanoseconds after it was due. */
  def tick(outcome: String, latenessNanos: Long): Unit =
    val seconds = math.max(0L, latenessNanos) / 1e9
    ticks.add(outcome)
    val bucket = Books.LatenessBounds.indexWhere(seconds <= _)
    lateness(if bucket < 0 then Books.LatenessBounds.length else bucket) += 1
    latenessSum += seconds

  /** Admits a session and counts it; else counts the refusal and returns its reason. */
  def admit(isAccepting: Boolean, limit: Int): Option[String] = synchronized:
    val refusal =
      if !isAccepting then Some("draining")
      else if limit > 0 && open >= limit then Some("full")
      else None
    refusal match
      case Some(reason) => rejected.add(reason)
      case None         =>
        accepted += 1
        open += 1
    refusal

  /** Returns the JSON body of `/stats`. */
  def stats: String = synchronized:
    val uptime = (System.nanoTime - Books.StartedAt) / 1e9
    s"""{"service":"${Main.Name}","version":"${Main.Version}","uptime_seconds":$uptime,""" +
      s""""connections":{"accepted":$accepted,"open":$open,"closed":${json(closed)},"rejected":${json(rejected)}},""" +
      s""""messages":{"received":$received,"consumed":$consumed,"delivered":$delivered,"dropped":${json(dropped)},""" +
      s""""queued":${waiting + inFlightFrames},"malformed":0,"sent":$sent,"send_dropped":{}},""" +
      s""""bytes":{"received":$bytesReceived,"sent":$bytesSent},""" +
      s""""inference":{"requests":$requests,"answered":$answered,"failed":${json(failed)},"abandoned":$abandoned,""" +
      s""""in_flight":$requestsInFlight,"ticks_skipped":${ticks.toMap("skipped")},"buffered_bytes":$bufferedBytes}}"""

  private def bufferedBytes: Long = (waiting + inFlightFrames) * FrameBytes

  // The names are constants of this program and need no escaping.
  private def json(counts: Counts): String =
    counts.toMap.map((name, count) => s"\"$name\":$count").mkString("{", ",", "}")

  /** Returns the body of `/metrics`, in Prometheus' text format. */
  def metrics: String = synchronized:
    val text = StringBuilder()
    def family(name: String, help: String)(samples: (String, Any)*): Unit =
      val kind = if name.endsWith("_total") then "counter" else "gauge"
      text ++= s"# HELP service_$name $help\n# TYPE service_$name $kind\n"
      samples.foreach((labels, value) => text ++= s"service_$name$labels $value\n")
    def by(label: String, counts: Counts) = counts.toMap.toSeq.map((name, count) => s"{$label=\"$name\"}" -> count)

    family("messages_received_total", "Complete data messages taken from sockets")("" -> received)
    family("messages_consumed_total", "Messages that the service answered itself")("" -> consumed)
    family("messages_delivered_total", "Frames answered by a partial")("" -> delivered)
    family("messages_dropped_total", "Messages not handed over")(by("reason", dropped)*)
    family("messages_queued", "Frames that wait or are in flight")("" -> (waiting + inFlightFrames))
    family("messages_malformed_total", "Text passed on that was no JSON object")("" -> 0)
    family("messages_sent_total", "Data messages handed to sockets")("" -> sent)
    family("messages_send_dropped_total", "Messages not sent")()
    family("connections_accepted_total", "Connections upgraded and registered")("" -> accepted)
    family("connections_open", "Connections open now")("" -> open)
    family("connections_closed_total", "Connections that ended")(by("reason", closed)*)
    family("connections_rejected_total", "Connections refused")(by("reason", rejected)*)
    family("bytes_received_total", "WebSocket bytes read from sockets")("" -> bytesReceived)
    family("bytes_sent_total", "WebSocket bytes written to sockets")("" -> bytesSent)
    family("inference_requests_total", "Requests begun")("" -> requests)
    family("inference_answered_total", "Requests whose answer became a partial")("" -> answered)
    family("inference_failed_total", "Requests whose frames got an error")(by("kind", failed)*)
    family("inference_abandoned_total", "Requests whose connection ended first")("" -> abandoned)
    family("inference_in_flight", "Requests in flight now")("" -> requestsInFlight)
    family("inference_in_flight_per_connection_max", "The most that were ever in flight for one")("" -> inFlightMax)
    family("buffered_bytes", "Audio held, waiting or in flight")("" -> bufferedBytes)
    family("flush_ticks_total", "Flush ticks by what they found")(by("outcome", ticks)*)
    family("process_resident_bytes", "Memory of the process")("" -> Books.residentBytes)
    histogram(text)
    text.toString

  private def histogram(text: StringBuilder): Unit =
    val name = "service_flush_lateness_seconds"
    text ++= s"# HELP $name How late flush ticks ran\n# TYPE $name histogram\n"
    val bounds = Books.LatenessBounds.map(_.toString) :+ "+Inf"
    bounds.zip(lateness.scanLeft(0L)(_ + _).tail).foreach: (bound, count) =>
      text ++= s"${name}_bucket{le=\"$bound\"} $count\n"
    text ++= s"${name}_sum $latenessSum\n${name}_count ${lateness.sum}\n"

object Books:
  private val LatenessBounds = Vector(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
  private val StartedAt = System.nanoTime
  private val PageBytes = 4096L

  private def residentBytes: Long = Files.readString(Path.of("/proc/self/statm")).split(' ')(1).toLong * PageBytes
