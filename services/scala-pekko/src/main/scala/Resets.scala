package wsladder.gateway

import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.scaladsl.ClientTransport
import org.apache.pekko.http.scaladsl.Http.OutgoingConnection
import org.apache.pekko.http.scaladsl.model.HttpResponse
import org.apache.pekko.http.scaladsl.settings.ClientConnectionSettings
import org.apache.pekko.stream.scaladsl.Flow
import org.apache.pekko.util.ByteString
import scala.collection.mutable
import scala.concurrent.Future

/**
 * Inserts a response before the reset of a stream that has no response yet. The response is marked as a reset.
 *
 * Pekko HTTP's client treats such a reset as a protocol error and closes the connection with all requests on it
 * (apache/pekko-http#614), or gives the request no result. So a `HEADERS` frame is inserted before the `RST_STREAM`.
 */
final class Resets:
  import Resets.*

  // The received part of an incomplete frame.
  private var incomplete = ByteString.empty
  // Streams with the headers of a response and without its end; Pekko handles their resets correctly.
  private val responding = mutable.HashSet.empty[Int]

  /** Adds bytes from the inference. Returns the frames that are complete now, with inserted responses. */
  def rewrite(bytes: ByteString): ByteString =
    val all = if incomplete.isEmpty then bytes else (incomplete ++ bytes).compact
    var out = ByteString.empty
    // The bytes before `from` are in `out`; the bytes before `at` are parsed.
    var from = 0
    var at = 0
    while at + HeaderBytes <= all.size && at + HeaderBytes + length(all, at) <= all.size do
      if isUnansweredReset(all, at) then
        out = out ++ all.slice(from, at) ++ responseTo(all.slice(at + StreamAt, at + HeaderBytes))
        from = at
      at += HeaderBytes + length(all, at)
    incomplete = all.drop(at)
    if from == 0 && at == all.size && out.isEmpty then all else out ++ all.slice(from, at)

  /** Whether the frame at `at` resets a stream without a response. Records responses that begin and end. */
  private def isUnansweredReset(all: ByteString, at: Int): Boolean =
    val stream = number(all, at + StreamAt, HeaderBytes - StreamAt) & Int.MaxValue
    val isLast = (all(at + FlagsAt) & EndStream) != 0
    all(at + TypeAt).toInt match
      case Headers if isLast => responding.remove(stream); false
      case Headers           => responding.add(stream); false
      case Data if isLast    => responding.remove(stream); false
      case RstStream         => !responding.remove(stream)
      case _                 => false

object Resets:
  // The header of a frame (RFC 9113, 4.1): length, type, flags, stream.
  private val HeaderBytes = 9
  private val LengthBytes = 3
  private val TypeAt = 3
  private val FlagsAt = 4
  private val StreamAt = 5
  private val Data = 0
  private val Headers = 1
  private val RstStream = 3
  private val EndStream = 1
  private val EndHeaders = 4

  private val Name = "x-stream-was-reset"
  // `:status: 500` from HPACK's static table, and a literal header that is not added to the dynamic table.
  private val Block = ByteString(0x8e, 0x00, Name.length) ++ ByteString(Name) ++ ByteString(1, '1')

  private def length(all: ByteString, at: Int): Int = number(all, at, LengthBytes)

  private def number(all: ByteString, at: Int, bytes: Int): Int = (at until at + bytes).foldLeft(0)((number, place) =>
    (number << 8) | (all(place) & 0xff)
  )

  private def responseTo(stream: ByteString): ByteString =
    ByteString(0, 0, Block.size, Headers, EndStream | EndHeaders) ++ stream ++ Block

  /** Whether `response` was inserted for a reset stream. */
  def isReset(response: HttpResponse): Boolean = response.headers.exists(_.is(Name))

  /** A TCP transport that inserts these responses before resets. */
  val transport: ClientTransport = new ClientTransport:
    def connectTo(host: String, port: Int, settings: ClientConnectionSettings)(using
        system: ActorSystem
    ): Flow[ByteString, ByteString, Future[OutgoingConnection]] =
      ClientTransport.TCP
        .connectTo(host, port, settings)
        .statefulMap(() => Resets())((resets, bytes) => (resets, resets.rewrite(bytes)), _ => None)
        .filter(_.nonEmpty)
