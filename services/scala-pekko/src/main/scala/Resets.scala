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
 * Turns a reset of a stream that has no answer yet into an answer that marks it as reset.
 *
 * Pekko HTTP's client takes such a reset for a broken protocol and ends the connection with all that is in flight on it
 * (apache/pekko-http#614), or answers nothing. So a `HEADERS` frame goes in front of the `RST_STREAM`.
 */
final class Resets:
  import Resets.*

  // The part so far of a frame that is not whole yet.
  private var rest = ByteString.empty
  // Streams whose answer has begun: their resets are Pekko's to understand.
  private val begun = mutable.HashSet.empty[Int]

  /** Takes bytes of the inference; whole frames come out. */
  def take(bytes: ByteString): ByteString =
    val all = if rest.isEmpty then bytes else (rest ++ bytes).compact
    var out = ByteString.empty
    // Up to `from` it is in `out`, up to `at` it was looked at.
    var from = 0
    var at = 0
    while at + HeaderBytes <= all.size && at + HeaderBytes + length(all, at) <= all.size do
      if isUnansweredReset(all, at) then
        out = out ++ all.slice(from, at) ++ answer(all.slice(at + StreamAt, at + HeaderBytes))
        from = at
      at += HeaderBytes + length(all, at)
    rest = all.drop(at)
    if from == 0 && at == all.size && out.isEmpty then all else out ++ all.slice(from, at)

  /** Whether the frame at this place resets a stream without an answer. Notes answers that begin and end. */
  private def isUnansweredReset(all: ByteString, at: Int): Boolean =
    val stream = number(all, at + StreamAt, HeaderBytes - StreamAt) & Int.MaxValue
    val isLast = (all(at + FlagsAt) & EndStream) != 0
    all(at + TypeAt).toInt match
      case Headers if isLast => begun.remove(stream); false
      case Headers           => begun.add(stream); false
      case Data if isLast    => begun.remove(stream); false
      case RstStream         => !begun.remove(stream)
      case _                 => false

object Resets:
  // A frame's header (RFC 9113, 4.1): length, type, flags, stream.
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
  // `:status: 500` of HPACK's static table, and a literal header that is put into no table.
  private val Block = ByteString(0x8e, 0x00, Name.length) ++ ByteString(Name) ++ ByteString(1, '1')

  private def length(all: ByteString, at: Int): Int = number(all, at, LengthBytes)

  private def number(all: ByteString, at: Int, bytes: Int): Int = (at until at + bytes).foldLeft(0)((number, place) =>
    (number << 8) | (all(place) & 0xff)
  )

  private def answer(stream: ByteString): ByteString =
    ByteString(0, 0, Block.size, Headers, EndStream | EndHeaders) ++ stream ++ Block

  /** Whether it is such an answer. */
  def saysReset(response: HttpResponse): Boolean = response.headers.exists(_.is(Name))

  /** TCP with such answers in place of resets. */
  val transport: ClientTransport = new ClientTransport:
    def connectTo(host: String, port: Int, settings: ClientConnectionSettings)(using
        system: ActorSystem
    ): Flow[ByteString, ByteString, Future[OutgoingConnection]] =
      ClientTransport.TCP
        .connectTo(host, port, settings)
        .statefulMap(() => Resets())((resets, bytes) => (resets, resets.take(bytes)), _ => None)
        .filter(_.nonEmpty)
